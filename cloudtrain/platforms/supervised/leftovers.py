"""Leftovers of jobs on this machine that may be removed: job folders and caches."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cloudtrain._system.safe_open import Beneath
from cloudtrain.errors import CloudtrainError, PlatformError
from cloudtrain.index import remove_job
from cloudtrain.packaging.cache import archives_home, lock_caches
from cloudtrain.platforms.base import JobDescription
from cloudtrain.platforms.supervised.pending_upload import is_pending
from cloudtrain.runtime.inputs.overlay import Overlay, overlays_in, size_of
from cloudtrain.runtime.supervisor.folder import JobFolder, folders_with_record
from cloudtrain.runtime.supervisor.record import RECORD
from cloudtrain.storage import state_home
from cloudtrain.storage.atomic import TEMPORARY, discard
from cloudtrain.storage.mount import mounts_below, unmount

CACHES = ("archives", "data", "runtime")
"""Packed sources, hashes of local data and packed runtimes. They are recreated when needed."""
ENVIRONMENTS = "environments"
"""The folder of the environments with installed requirements."""

PACKING_SECONDS = 3600.0
"""A temporary file up to this age may still be in use by a submission that packs a large source."""
STALE_SECONDS = 86400.0
"""A temporary file of this age was left by a process that was killed."""
UNUSED_SECONDS = 30 * 86400.0
"""An environment that no job has used for this time is removed, even without ``--caches``."""


@dataclass(frozen=True)
class Leftover:
    """An object that can be removed. ``size`` is in bytes."""

    kind: str
    """``container``, ``network``, ``mount``, ``job``, ``checkpoints``, ``cache`` or ``environment``."""
    name: str
    size: int
    remove: Callable[[], None] = field(repr=False, compare=False)
    platform: str = ""
    """The platform of a job."""


def job_folders() -> Iterator[tuple[str, JobFolder]]:
    """Every job of this user on this machine, with its platform."""
    for jobs in sorted((state_home() / "jobs").glob("*")):
        for path in folders_with_record(jobs):
            yield jobs.name, JobFolder(path)


class JobEnds:
    """Queries platforms for which jobs have ended, because a job that waits in a queue has neither process nor lock.

    Args:
        describe: returns the description of a job, given its platform and name. It may raise any exception.
    """

    def __init__(self, describe: Callable[[str, str], JobDescription]) -> None:
        self._describe = describe
        self.unknown: dict[str, str] = {}
        """Why it is unknown whether a job has ended, by its platform and name."""

    def has_ended(self, platform: str, folder: JobFolder) -> bool:
        """Also false if that is unknown."""
        if may_be_alive(folder):
            return False
        try:
            record = folder.read_record()
            if record.status.is_final and not record.is_damaged and not _ticket(platform, folder).exists():
                return True
            description = self._describe(platform, folder.name)
            if os.path.realpath(description.place) == os.path.realpath(folder.path):
                return description.status.is_final
            reason = f"the {platform} job of this name is in {description.place}"
        except FileNotFoundError:
            return False  # another process has removed it
        except Exception as error:
            reason = error.message if isinstance(error, CloudtrainError) else str(error)
        self.unknown[f"{platform} job {folder.name}"] = reason
        return False

    def have_all(self) -> bool:
        """Whether all jobs are known to have ended."""
        return all(self.has_ended(platform, folder) for platform, folder in job_folders())


def old_jobs(before: float, ends: JobEnds) -> Iterator[Leftover]:
    """The folders of jobs that have ended before ``before``, in seconds since the epoch."""
    for platform, folder in job_folders():
        try:
            if _changed(folder) >= before and not folder.read_record().status.is_final:
                continue  # no need to query its platform
            if not ends.has_ended(platform, folder):
                continue
            record = folder.read_record()
            ended = record.ended_at or _changed(folder)
        except FileNotFoundError:
            continue  # another process has removed it
        if ended < before and not is_pending(record):  # a pending upload has the only copy of its model
            remove = partial(_remove_job, platform, folder)
            yield Leftover("job", folder.name, size_of_folder(folder.path), remove, platform)


def _changed(folder: JobFolder) -> float:
    return (folder.path / RECORD).lstat().st_mtime


def abandoned_mounts(ends: JobEnds) -> Iterator[Leftover]:
    """Mounts of channels whose job has ended, because all processes that should have unmounted them were killed."""
    for platform, folder in job_folders():
        mounts = mounts_below(folder.path)
        if mounts and ends.has_ended(platform, folder):
            for mount in mounts:
                yield Leftover("mount", str(mount), 0, partial(unmount, mount))


def size_of_folder(path: Path) -> int:
    """The size of a folder in bytes. Its content is not trusted, because jobs can write there."""
    with contextlib.suppress(OSError), Beneath(path) as folder:
        return sum(found.status.st_size for found in folder.walk(lambda key, why: None) if found.is_file)
    return 0


def _remove_job(platform: str, folder: JobFolder) -> None:
    for mount in mounts_below(folder.path):
        unmount(mount)
    discard(folder.path)
    _ticket(platform, folder).unlink(missing_ok=True)
    remove_job(folder.name, platform)


def _ticket(platform: str, folder: JobFolder) -> Path:
    """See `TicketFiles`."""
    return state_home() / "clusters" / platform / f"{folder.name}.json"


def unused_caches(ends: JobEnds) -> Iterator[Leftover]:
    """All caches, except one that a submission may be writing; nothing while a job or a submission may use them."""
    if is_in_use(ends):
        return
    for path in (state_home() / name for name in CACHES):
        if path.is_dir() and not any(age < PACKING_SECONDS for _, age in _temporaries(path)):
            yield Leftover(
                "cache", str(path), size_of(path), partial(remove_unused, partial(discard, path), ends)
            )


def environments(before: float, ends: JobEnds) -> Iterator[Leftover]:
    """Environments with requirements that no job has used since ``before``, and those that were never completed.

    Nothing while a job or a submission may use them.
    """
    if is_in_use(ends):
        return
    for overlay in overlays_in(state_home() / ENVIRONMENTS):
        if overlay.last_used < before or not overlay.is_complete:
            yield _environment(overlay, ends)


def _environment(overlay: Overlay, ends: JobEnds) -> Leftover:
    return Leftover(
        "environment", str(overlay.path), overlay.size, partial(remove_unused, overlay.remove, ends)
    )


def is_in_use(ends: JobEnds) -> bool:
    """Whether a job or a submission may be using the files that several jobs share."""
    with lock_caches() as free:
        return not free or not ends.have_all()


def remove_unused(remove: Callable[[], None], ends: JobEnds) -> None:
    """Remove files that jobs share, while no submission can begin. Raises PlatformError if one has already begun."""
    with lock_caches() as free:
        if not free or not ends.have_all():
            raise PlatformError("a job that has just been submitted uses it")
        remove()


def may_be_alive(folder: JobFolder) -> bool:
    """Whether a job has or may have a process here: Windows has no locks, and cannot see those of a job in WSL."""
    try:
        return folder.is_alive()
    except (OSError, PlatformError):
        return True


def _may_be_locked(draft: JobFolder) -> bool:
    """Whether a submission may be creating this folder. A record may be a copy, and name another job's process."""
    try:
        return draft.is_locked()
    except OSError:
        return True


def stale_temporaries() -> Iterator[Leftover]:
    """Temporary files that killed submissions left among the packed sources."""
    for path, age in _temporaries(archives_home()):
        if age > STALE_SECONDS and path.is_file():
            yield Leftover("cache", str(path), path.stat().st_size, partial(path.unlink, missing_ok=True))


def half_made() -> Iterator[Leftover]:
    """Folders of jobs that killed submissions left, and folders whose removal was interrupted."""
    home = state_home()
    for path, age in (*_temporaries(home / "jobs", "*/"), *_temporaries(home)):
        if age > PACKING_SECONDS and path.is_dir() and not _may_be_locked(JobFolder(path)):
            yield Leftover("cache", str(path), size_of(path), partial(discard, path))


def _temporaries(folder: Path, below: str = "") -> Iterator[tuple[Path, float]]:
    """The temporary files in a cache, with their age in seconds."""
    for path in sorted(folder.glob(f"{below}{TEMPORARY}*")):
        with contextlib.suppress(FileNotFoundError):  # its submission has just finished
            yield path, time.time() - path.stat().st_mtime
