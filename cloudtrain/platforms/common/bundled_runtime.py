"""The requirements that a job in a container must meet for cloudtrain's bundled runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.errors import InvalidJob
from cloudtrain.packaging.zipapp import RUNTIME_FILE
from cloudtrain.runtime.host_config import RUNTIME_CHANNEL, SECRET_CHANNEL

if TYPE_CHECKING:  # supervisors need no description of jobs
    from cloudtrain.spec import TrainingJob

RUNTIME_PATH = f"{DEFAULT_BASE}/input/data/{RUNTIME_CHANNEL}/{RUNTIME_FILE}"
"""The zipapp in the container."""

SOURCE_CHANNEL = "code"
"""The channel of the source's archive."""

# SageMaker allows 256 characters in a string, in one line. The argument after a script is its $0. -S skips `site`,
# which takes longer than all the rest, and is needed only by the Python that becomes the runtime.
_START = (
    'for p in python3 python; do "$p" -Sc "import sys; sys.exit(sys.version_info < (3, 9))" 2>/dev/null'
    ' && exec "$p" -S "$0"; done;'
    " echo cloudtrain: this image has no Python 3.9 or newer | tee /opt/ml/output/failure; exit 127"
)
ENTRYPOINT = ("/bin/sh", "-c", _START, RUNTIME_PATH)


DEFAULT_CHECKPOINTS = f"{DEFAULT_BASE}/checkpoints"


def check_bundled_runtime(job: TrainingJob) -> None:
    """Raises InvalidJob for a job that cloudtrain's runtime cannot run in a container."""
    elsewhere = 'use runtime="toolkit", which runs the program of its image'
    if job.entry_point is None:
        raise InvalidJob(
            "entry_point: cloudtrain's runtime needs a script",
            hint=f"Name the script to run; or {elsewhere}.",
        )
    for field in ("container_entry_point", "container_arguments"):
        if getattr(job, field):
            raise InvalidJob(
                f"{field}: cloudtrain's runtime starts the container itself",
                hint=f"Run the program as the job's entry_point, such as a shell script; or {elsewhere}.",
            )
    check_channel_names(job)
    if job.checkpoint_local_path and not job.checkpoint_local_path.startswith("/"):
        raise InvalidJob(
            f"checkpoint_local_path: {job.checkpoint_local_path!r} is not absolute",
            hint=f"Write {DEFAULT_BASE}/{job.checkpoint_local_path}, or omit it: the default is {DEFAULT_CHECKPOINTS}.",
        )


def check_channel_names(job: TrainingJob) -> None:
    """Raises InvalidJob for a channel whose name cloudtrain uses for the runtime, the source or the secret."""
    for name in (RUNTIME_CHANNEL, SOURCE_CHANNEL, SECRET_CHANNEL):
        if name in job.channels:
            raise InvalidJob(
                f"inputs.{name}: cloudtrain uses a channel of this name for its runtime",
                hint='Rename the channel; or use runtime="toolkit", which runs the program of its image.',
            )


_OUR_SOURCES = "/cloudtrain/source"
"""The end of a code location that a platform has chosen."""


def shared_folder(code_location: str) -> str:
    """The user's code location itself, or the parent of one that cloudtrain has chosen.

    >>> shared_folder("s3://bucket/jobs/cloudtrain/source"), shared_folder("s3://team/source/")
    ('s3://bucket/jobs/cloudtrain', 's3://team/source')
    """
    location = code_location.rstrip("/")
    return location.removesuffix("/source") if location.endswith(_OUR_SOURCES) else location
