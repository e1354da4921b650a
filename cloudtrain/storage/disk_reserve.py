"""Disk space that is kept for the final report of a job: a full disk must not hide how the job ended."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

from cloudtrain._system.files import replace
from cloudtrain.storage.atomic import replace_file

SPARE = ".cloudtrain-spare-"
"""The names of the spare files start with this."""

SPARE_SIZE = 64 * 1024
"""The size of a spare file, and the most that `Reserve.replace` writes to a full disk, in bytes."""


def is_full(error: BaseException) -> bool:
    """Whether an error means that the disk, or the user's share of it, has no space left."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """Spare files in a folder. On a full disk, a spare becomes the file that has to be written.

    The spare already has its blocks: overwriting and renaming it needs no space that another program could take first.
    Only on a file system that never overwrites in place, such as Btrfs, is the spare deleted first.

    Args:
        count: how many files can be written on a full disk.
    """

    def __init__(self, folder: Path, count: int = 4) -> None:
        self._paths = [folder / f"{SPARE}{number}" for number in range(count)]

    def keep(self) -> bool:
        """Create the spare files that are missing. Returns False if the disk is full already, or too small."""
        try:
            for path in self._paths:
                if not path.exists():
                    replace_file(path, os.urandom(SPARE_SIZE))  # no file system can compress it
        except OSError:
            return False
        return True

    def replace(
        self,
        path: Path,
        data: bytes,
        *,
        shorter: Callable[[], bytes] | None = None,
        leave: int = 0,
        fsync: bool = False,
    ) -> None:
        """Like `replace_file`, also on a full disk, as long as more than ``leave`` spare files remain. Raises OSError.

        Args:
            shorter: called on a full disk if ``data`` has more than `SPARE_SIZE` bytes; returns at most as many.
        """
        try:
            replace_file(path, data, fsync=fsync)
            return
        except OSError as error:
            spares = [spare for spare in self._paths if spare.exists()]
            if not is_full(error) or len(spares) <= leave:
                raise
        if shorter and len(data) > SPARE_SIZE:
            data = shorter()
        spare = spares[-1]
        try:
            _overwrite(spare, data)
        except OSError as error:
            if not is_full(error):
                raise
            spare.unlink()
            replace_file(path, data)
            return
        replace(spare, path)

    def release(self) -> None:
        """Free all spare files but one, to make space for the next writes."""
        self._remove(self._paths[1:])

    def remove(self) -> None:
        self._remove(self._paths)

    def _remove(self, paths: list[Path]) -> None:
        for path in paths:
            with contextlib.suppress(OSError):
                path.unlink()


def _overwrite(path: Path, data: bytes) -> None:
    with open(path, "r+b", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        file.truncate(len(data))
        os.fsync(file.fileno())
