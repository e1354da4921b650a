"""Leftovers of jobs on this machine that may be removed: job folders and caches."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cloudtrain.index import IndexEntry, remove_job
from cloudtrain.platforms.supervised.folder import RECORD, JobFolder
from cloudtrain.storage import state_home

CACHES = ("archives", "environments", "runtime")
"""Packed sources, environments of requirements and packed runtimes. They are recreated when needed."""


@dataclass(frozen=True)
class Leftover:
    """An object that can be removed. ``size`` is in bytes."""

    kind: str
    """``container``, ``network``, ``job`` or ``cache``."""
    name: str
    size: int
    remove: Callable[[], None] = field(repr=False, compare=False)


def job_folders() -> Iterator[tuple[str, JobFolder]]:
    """Every job of this user on this machine, with its platform."""
    for path in sorted((state_home() / "jobs").glob(f"*/*/{RECORD}")):
        yield path.parents[1].name, JobFolder(path.parent)


def old_jobs(before: float) -> Iterator[Leftover]:
    """The folders of jobs that have ended before ``before``, in seconds since the epoch."""
    for platform, folder in job_folders():
        record = folder.read_record()
        if (record.ended_at or (folder.path / RECORD).stat().st_mtime) < before and not folder.is_locked():
            yield Leftover("job", folder.name, size_of(folder.path), partial(_remove_job, platform, folder))


def _remove_job(platform: str, folder: JobFolder) -> None:
    shutil.rmtree(folder.path)
    remove_job(IndexEntry(folder.name, platform, 0.0))


def unused_caches() -> Iterator[Leftover]:
    """All caches; nothing while any job is alive, as it may use them."""
    if any(folder.is_locked() for _, folder in job_folders()):
        return
    for path in (state_home() / name for name in CACHES):
        if path.is_dir():
            yield Leftover("cache", str(path), size_of(path), partial(shutil.rmtree, path))


def size_of(folder: Path) -> int:
    """The total size in bytes of the files below a folder."""
    return sum(
        os.lstat(os.path.join(parent, name)).st_size for parent, _, names in os.walk(folder) for name in names
    )
