"""Folders that no other user may read or change."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Collection
from pathlib import Path

from cloudtrain._system.users import ROOT, home, owns, user_id

_OTHERS = 0o077
_OTHERS_WRITE = 0o022
_OWN_FOLDER = "Set CLOUDTRAIN_HOME to a folder of your own, which others can neither read nor change."


class FolderIsOpen(Exception):
    """Other users may have changed a folder. ``problem`` completes a sentence about it."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


if sys.platform == "win32":

    def make_private(folder: Path, content: Collection[str]) -> None:
        """Does nothing: Windows gives a folder in the user's profile the right permissions."""

    def make_own(folder: Path) -> None:
        """Create a folder, with its missing parents, unless it exists."""
        folder.mkdir(parents=True, exist_ok=True)

    def check_own(path: Path) -> None:
        """Does nothing, as above."""

else:

    def make_private(folder: Path, content: Collection[str]) -> None:
        """Close a folder to other users, and say so on stderr if there is something in it.

        Args:
            content: names; a folder that is used for nothing else contains one of them.

        Raises:
            FolderIsOpen: others can replace the folder or may have changed it, or it is used for other things too.
            OSError: it cannot be read or changed.
        """
        link = os.lstat(folder)
        if stat.S_ISLNK(link.st_mode) and link.st_uid not in (user_id(), ROOT):
            raise FolderIsOpen("is a link of another user", _OWN_FOLDER)
        for parent in Path(os.path.realpath(folder)).parents:
            mode = os.stat(parent).st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                raise FolderIsOpen(
                    f"can be replaced by other users: all may write to {parent}",
                    f"Change that with: chmod o-w {parent}. Or: {_OWN_FOLDER}",
                )
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _close(folder, descriptor, content)
        finally:
            os.close(descriptor)

    def make_own(folder: Path) -> None:
        """Create a folder for the user only, with its missing parents, whatever the umask is; see `check_own`."""
        if not os.path.lexists(folder):
            if not folder.parent.exists():
                make_own(folder.parent)
            folder.mkdir(mode=0o700, exist_ok=True)
        check_own(folder)

    def check_own(path: Path) -> None:
        """Take the right to write to a file or folder of the user away from all others.

        Raises:
            FolderIsOpen: it belongs to someone else, who could change it.
            OSError: it cannot be read or changed.
        """
        for status in (os.lstat(path), os.stat(path)):
            if not owns(status) and status.st_uid != ROOT:
                raise FolderIsOpen("belongs to another user", "Choose a folder of your own.")
        if status.st_mode & _OTHERS_WRITE and owns(status):
            os.chmod(path, stat.S_IMODE(status.st_mode) & ~_OTHERS_WRITE)

    def _close(folder: Path, descriptor: int, content: Collection[str]) -> None:
        status = os.fstat(descriptor)
        if not owns(status):
            raise FolderIsOpen("belongs to another user", _OWN_FOLDER)
        if not status.st_mode & _OTHERS:
            return
        names = os.listdir(descriptor)
        is_shared = bool(status.st_mode & stat.S_ISVTX) or f"{home()}/".startswith(f"{folder}/")
        if is_shared or (names and set(names).isdisjoint(content)):
            raise FolderIsOpen(
                "is open to other users, and has other content than cloudtrain's",
                "Set CLOUDTRAIN_HOME to another folder, for example a new one in this folder.",
            )
        if status.st_mode & _OTHERS_WRITE:
            for name in names:
                if not owns(os.stat(name, dir_fd=descriptor, follow_symlinks=False)):
                    raise FolderIsOpen(
                        f"can be written by other users, and {name!r} in it belongs to one of them",
                        f"Remove what is not yours, and then: chmod 700 {folder}",
                    )
        os.fchmod(descriptor, 0o700)
        if names:
            sys.stderr.write(f"[cloudtrain] other users could read {folder}: it is closed to them now\n")
