"""Finds the trace files of a timeline: the named files, or those that a job recorded."""

from __future__ import annotations

import contextlib
import os
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from cloudtrain._system.safe_open import Beneath
from cloudtrain.errors import NotFound, StorageError

if TYPE_CHECKING:
    from cloudtrain.job import Job

FOLDER = "timeline"
"""The folder of the traces below a job's ``output/data/``."""
_PATTERNS = ("*.json", "*.json.gz")


@contextmanager
def timeline_files(what: Sequence[str], platform: str | None) -> Iterator[list[Path]]:
    """The trace files named by ``what``: files, folders, or one job. Downloaded files exist until the context ends.

    Raises:
        NotFound: a file does not exist, or the job recorded no timeline (yet).
        JobNotFound: neither a file nor a job has this name.
        StorageError: the job's files cannot be downloaded.
    """
    with TemporaryDirectory(prefix="cloudtrain-timeline-") as folder:
        may_be_job = len(what) == 1 and not {".", "/"} & set(what[0])
        if may_be_job and not Path(what[0]).exists():
            from cloudtrain.job import Job

            found = job_files(Job.attach(what[0], platform), Path(folder))
        else:
            found = [path for name in what for path in _named(Path(name))]
        yield found


def _named(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = _traces(path)
    if not found:
        raise NotFound(
            f"there is no trace at {path}", hint="Give trace files, folders with trace files, or one job."
        )
    return found


def job_files(job: Job, folder: Path) -> list[Path]:
    """The trace files of a job, in ``folder``: copied from its folder on this machine if it has them, else downloaded.

    Raises:
        NotFound, StorageError: as `timeline_files`.
    """
    description = job.describe()
    hosts = Path(description.place or os.devnull) / "hosts"
    found = [path for host in sorted(hosts.glob("*")) for path in _copied(host, folder / "hosts" / host.name)]
    if not found and description.output_data:
        for path in job.download(folder, model=False):
            found += _traces(_unpacked(path) / FOLDER)
    if not found:
        raise NotFound(
            f"job {job.name} ({description.status}) has no timeline",
            hint="Submit the job with timeline=True (--set timeline=true). Ranks record from init() on.",
        )
    return found


def _copied(host: Path, folder: Path) -> list[Path]:
    """Copies of the traces of a host, whose job can put anything in their place while they are read."""
    with contextlib.suppress(OSError), Beneath(host) as base, base.inside(f"output/data/{FOLDER}") as traces:
        for found in traces.contents():
            if found.is_file and any(fnmatch(found.key, pattern) for pattern in _PATTERNS):
                with traces.open(found.key) as source:
                    folder.mkdir(parents=True, exist_ok=True)
                    with open(folder / found.key, "wb") as target:
                        shutil.copyfileobj(source, target)
    return _traces(folder)


def _unpacked(path: Path) -> Path:
    """The folder of a download; an archive is unpacked first, only its timelines."""
    if path.is_dir():
        return path
    target = path.with_suffix(".unpacked")
    try:
        with tarfile.open(path) as archive:
            # not extractall(filter="data"): Python 3.10 before 3.10.12 and 3.11 before 3.11.4 lack the filter
            for member in archive:
                parts = PurePosixPath(member.name).parts
                source = archive.extractfile(member) if parts[:1] == (FOLDER,) and ".." not in parts else None
                if source is not None and member.isreg():
                    file = target.joinpath(*parts)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(source.read())
    except (tarfile.TarError, EOFError) as error:
        raise StorageError(f"{path.name} of the job is damaged: {error}") from error
    return target


def _traces(folder: Path) -> list[Path]:
    return sorted(path for pattern in _PATTERNS for path in folder.glob(pattern))
