"""Removes and measures folders that were filled by another program: a container, or a script.

They may be nested deeper than a path can be long, closed to everyone, and full of links.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import sys
from pathlib import Path

open_folder = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
"""Flags for `os.open` to open a folder, but not a link to one."""


def permit(parent: int, name: str, status: os.stat_result) -> None:
    """Let the owner of a folder, whose parent is open, read and change it. Does nothing without the permission."""
    if status.st_mode & 0o700 != 0o700:
        with contextlib.suppress(OSError, ValueError, NotImplementedError):  # a link has replaced it
            os.chmod(name, 0o700, dir_fd=parent, follow_symlinks=False)


if sys.platform == "win32":

    def remove_tree(path: Path) -> None:
        """Remove a folder with its content. Raises OSError."""
        shutil.rmtree(path)

    def remove_entry(parent: int, name: str) -> None:
        """Windows cannot open folders. Raises OSError."""
        raise OSError(errno.ENOSYS, "jobs run on Linux and macOS")

else:

    def remove_tree(path: Path) -> None:
        """Remove a folder with its content, except mounts below it. Follows no links. Raises OSError."""
        parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.stat(path.name, dir_fd=parent, follow_symlinks=False)
            remove_entry(parent, path.name)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        finally:
            os.close(parent)

    def remove_entry(parent: int, name: str) -> None:
        """Remove a file, a link, or a folder with its content, if it exists. Raises OSError.

        Moves every folder to the top before emptying it, so that deep folders need no additional descriptors and no
        recursion.

        Args:
            parent: the descriptor of the folder that contains it.
        """
        try:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(name, dir_fd=parent)
            return
        permit(parent, name, status)
        top = os.open(name, open_folder, dir_fd=parent)
        try:
            prefix = f".cloudtrain-removed-{os.urandom(8).hex()}-"
            count = 0
            waiting = _empty(top)
            while waiting:
                inner = waiting.pop()
                folder = os.open(inner, open_folder, dir_fd=top)
                try:
                    if os.fstat(folder).st_dev != status.st_dev:
                        raise OSError(errno.EBUSY, f"something is mounted at {inner}")
                    for found in _empty(folder):
                        count += 1
                        os.rename(found, f"{prefix}{count}", src_dir_fd=folder, dst_dir_fd=top)
                        waiting.append(f"{prefix}{count}")
                finally:
                    os.close(folder)
                os.rmdir(inner, dir_fd=top)
        finally:
            os.close(top)
        os.rmdir(name, dir_fd=parent)

    def _empty(folder: int) -> list[str]:
        """Remove everything but folders. Returns the names of the folders, which this user can now change."""
        folders = []
        with os.scandir(folder) as children:
            found = list(children)
        for child in found:
            status = child.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                permit(folder, child.name, status)
                folders.append(child.name)
            else:
                os.unlink(child.name, dir_fd=folder)
        return folders
