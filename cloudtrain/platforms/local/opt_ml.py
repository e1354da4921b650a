"""Whether the hosts of a job can have their own ``/opt/ml``."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

from cloudtrain.contract.opt_ml import LARGEST, SUFFIXES, advice, find_uses, show_uses
from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.packaging.cache import cached_archive
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.checks import CheckStatus, Finding
from cloudtrain.platforms.local import namespace
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import state_home


def check_opt_ml(job: TrainingJob, request: Request | None) -> Finding:
    """Warns if the source uses ``/opt/ml``, and the job's hosts do not have it."""
    home = state_home()
    reason = namespace.no_opt_ml(request.body, home) if request else namespace.obstacle([home])
    reason = reason or namespace.try_here(Path(__file__).parent)
    if not reason:
        return Finding(CheckStatus.OK, f"{DEFAULT_BASE} is the job's own folder")
    uses = find_uses(_texts(job)) if job.source else []
    if not uses:
        return Finding(CheckStatus.OK, f"not used; jobs do not have it here: {reason}")
    return Finding(
        CheckStatus.WARNING,
        f"{show_uses(uses)}, but jobs do not have {DEFAULT_BASE} here: {reason}",
        advice(uses[0].path),
    )


def _texts(job: TrainingJob) -> Iterator[tuple[str, bytes]]:
    """The files of the job's packed source that can be searched. Another check reports one that cannot be read."""
    if job.source is None:
        return
    try:
        with tarfile.open(cached_archive(job.source.sha256)) as tar:
            for member in tar:
                if (
                    member.name.endswith(SUFFIXES)
                    and member.size <= LARGEST
                    and (file := tar.extractfile(member))
                ):
                    yield member.name, file.read()
    except (OSError, tarfile.TarError):
        return
