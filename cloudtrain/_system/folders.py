"""Folders that no other user may read or change."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Collection
from pathlib import Path

from cloudtrain._system.owned import OWN, FolderIsOpen, safe_path
from cloudtrain._system.users import home, owns

_OTHERS = 0o077
_OTHERS_WRITE = 0o022


if sys.platform == "win32":

    def make_private(folder: Path, content: Collection[str]) -> None:
        """Does nothing: Windows gives a folder in the user's profile the right permissions."""

else:

    def make_private(folder: Path, content: Collection[str]) -> None:
        """Close a folder to other users, and report that on stderr if the folder is not empty.

        Args:
            content: names, one of which is in a folder that is used for nothing else.

        Raises:
            FolderIsOpen: others can replace the folder or may have changed it, or it is used for other things too.
            OSError: it cannot be read or changed.
        """
        descriptor = os.open(safe_path(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _close(folder, descriptor, content)
        finally:
            os.close(descriptor)

    def _close(folder: Path, descriptor: int, content: Collection[str]) -> None:
        status = os.fstat(descriptor)
        if not owns(status):
            raise FolderIsOpen(str(folder), "belongs to another user", OWN)
        if not status.st_mode & _OTHERS:
            return
        names = os.listdir(descriptor)
        is_shared = bool(status.st_mode & stat.S_ISVTX) or f"{home()}/".startswith(f"{folder}/")
        if is_shared or (names and set(names).isdisjoint(content)):
            raise FolderIsOpen(
                str(folder),
                "is open to other users, and has other content than cloudtrain's",
                "Set CLOUDTRAIN_HOME to another folder, for example a new one in this folder.",
            )
        if status.st_mode & _OTHERS_WRITE:
            for name in names:
                if not owns(os.stat(name, dir_fd=descriptor, follow_symlinks=False)):
                    raise FolderIsOpen(
                        str(folder),
                        f"can be written by other users, and {name!r} in it belongs to one of them",
                        f"Remove what is not yours, and then: chmod 700 {folder}",
                    )
        os.fchmod(descriptor, 0o700)
        if names:
            sys.stderr.write(f"[cloudtrain] other users could read {folder}: it is closed to them now\n")
