"""The folder in which this machine keeps packed sources."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from cloudtrain._system.files import lock
from cloudtrain.storage import state_home

FILE_NAME = "sourcedir.tar.gz"


def archives_home() -> Path:
    """The folder of all source archives of this user."""
    return state_home() / "archives"


def cached_archive(sha256: str) -> Path:
    """The path of the source archive with this hash. It may have been removed."""
    return archives_home() / sha256 / FILE_NAME


def hold_caches() -> IO[bytes] | None:
    """Keep everything in the caches until the result is closed, for a job that is being submitted.

    Waits for a cleanup to end. None where the caches cannot be locked: on Windows, or in a read-only folder.
    """
    try:
        file = open(_lock_file(), "ab")  # noqa: SIM115 - the caller closes it
    except OSError:
        return None
    try:
        lock(file.fileno(), shared=True)
    except OSError:
        file.close()
        return None
    return file


@contextlib.contextmanager
def lock_caches() -> Iterator[bool]:
    """Keep submissions from starting during the block. If one is in progress, yields False, and keeps none."""
    with open(_lock_file(), "ab") as file:
        try:
            free = lock(file.fileno(), wait=False)
        except OSError:  # on Windows
            free = True
        yield free


def _lock_file() -> Path:
    return state_home() / "caches.lock"
