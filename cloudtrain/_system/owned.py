"""Folders that no other user can change or replace: all roots of jobs, caches and the state folder are checked here.

A user who can write to a folder, or to one above it, can replace the code that a job starts. So the owner and the mode
of each folder from ``/`` down are checked. Only the user and root can replace a folder that has passed, or the next one
in it: nothing can be swapped between two checks or afterwards.

`platforms.hosts` sends this file to hosts without cloudtrain, so it imports nothing from cloudtrain.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import sys
from pathlib import Path

MOST_LINKS = 40
"""The most links that are followed for one path, as on Linux."""
_OTHERS_WRITE = 0o022
_NAMED = (0x02, 0x08)
"""The tags of users and groups in a POSIX ACL."""
OWN = "Choose a folder of your own, in folders that belong to you or to root."


class FolderIsOpen(Exception):
    """Other users could change a folder. ``problem`` completes a sentence about ``path``."""

    def __init__(self, path: str, problem: str, hint: str) -> None:
        super().__init__(f"{path} {problem}")
        self.path = path
        self.problem = problem
        self.hint = hint


if sys.platform == "win32":  # a folder in the user's profile has the right permissions

    def own_folder(path: str | Path, *, create: bool = False) -> str:
        """Create a folder if requested. Returns its absolute path."""
        if create:
            os.makedirs(path, exist_ok=True)
        return os.path.abspath(path)

    own_place = safe_path = own_folder

else:

    def own_folder(path: str | Path, *, create: bool = False) -> str:
        """Check a folder, and revoke the permission of others to write to it. Returns its path without links.

        Args:
            create: make the folder and its missing parents, for this user only.

        Raises:
            FolderIsOpen: another user could change or replace the folder.
            OSError: it is missing, or is not a folder.
        """
        folder = safe_path(path, create=create)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            status = os.fstat(descriptor)
            if status.st_uid not in _owners():
                raise FolderIsOpen(str(path), "belongs to another user", OWN)
            if status.st_mode & stat.S_ISVTX or status.st_uid != os.geteuid():
                if status.st_mode & _OTHERS_WRITE:
                    raise FolderIsOpen(str(path), "is for the files of several users", OWN)
            elif status.st_mode & _OTHERS_WRITE:
                os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & ~_OTHERS_WRITE)
        finally:
            os.close(descriptor)
        return folder

    def own_place(path: str | Path, *, create: bool = False) -> str:
        """Check a folder such as ``/tmp``, in which other users may have files, but cannot replace those of others.

        Arguments and errors are those of `own_folder`.
        """
        folder = safe_path(path, create=create)
        _check_parent(str(path), folder, _owners())
        return folder

    def safe_path(given: str | Path, *, create: bool = False) -> str:
        """The path of a file or folder without links, which only this user and root can replace.

        Arguments and errors are those of `own_folder`.
        """
        path, owners = str(given), _owners()
        rest = os.path.join(os.getcwd(), path).split("/")[::-1]
        found, links = "/", 0
        while rest:
            name = rest.pop()
            if name in ("", "."):
                continue
            if name == "..":
                found = os.path.dirname(found)
                continue
            _check_parent(path, found, owners)
            inner = os.path.join(found, name)
            try:
                status = os.lstat(inner)
            except FileNotFoundError:
                if not create:
                    raise
                with contextlib.suppress(FileExistsError):
                    os.mkdir(inner, 0o700)
                status = os.lstat(inner)
            if not stat.S_ISLNK(status.st_mode):
                if status.st_uid not in owners:
                    raise _foreign(path, inner, is_last=not any(rest))
                found = inner
                continue
            links += 1
            if status.st_uid not in owners:
                is_last = not any(rest)
                way = "is" if is_last else f"leads through {inner},"
                raise FolderIsOpen(path, f"{way} a link of another user", OWN)
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = os.readlink(inner)
            found = "/" if target.startswith("/") else found
            rest += target.split("/")[::-1]
        return found

    def _check_parent(path: str, parent: str, owners: tuple[int, ...]) -> None:
        """Raises FolderIsOpen if another user could replace what is in ``parent``, on the way to ``path``."""
        status = os.stat(parent)
        if status.st_uid not in owners:
            raise _foreign(path, parent, is_last=False)
        if status.st_mode & stat.S_ISVTX:
            return
        who = "o" * bool(status.st_mode & stat.S_IWOTH)
        is_private = _is_private(status.st_gid) and not _has_acl_writers(parent)
        if status.st_mode & stat.S_IWGRP and not is_private and not _is_closed(parent):
            who = f"g{who}"
        if who:
            writers, where = "all" if "o" in who else "its group", "it" if parent == path else parent
            raise FolderIsOpen(
                path,
                f"can be replaced by other users: {writers} may write to {where}",
                f"Change that with: chmod {who}-w {parent}. Or choose a folder elsewhere.",
            )

    def _foreign(path: str, folder: str, *, is_last: bool) -> FolderIsOpen:
        problem = (
            "belongs to another user"
            if is_last
            else f"can be replaced by the owner of {folder}, another user"
        )
        return FolderIsOpen(path, problem, OWN)

    def _owners() -> tuple[int, ...]:
        """The users who are trusted with everything: this one and root.

        In a user namespace, folders of the outer root appear to have an owner that does not exist in the namespace.
        """
        with contextlib.suppress(OSError, ValueError), open("/proc/self/uid_map") as file:
            lines = [tuple(map(int, line.split())) for line in file]
            if lines != [(0, 0, (1 << 32) - 1)]:
                with open("/proc/sys/kernel/overflowuid") as overflow:
                    unmapped = int(overflow.read())
                if not any(first <= unmapped < first + count for first, _, count in lines):
                    return (os.geteuid(), 0, unmapped)
        return (os.geteuid(), 0)

    def _is_closed(folder: str) -> bool:
        """Whether a parent folder admits only its owner: a home folder is often closed, although its umask is 002."""
        return any(not os.stat(parent).st_mode & 0o011 for parent in Path(folder).parents)

    def _has_acl_writers(folder: str) -> bool:
        """Whether a POSIX ACL lets further users or groups write to a folder. The mode does not show which ones."""
        getxattr = getattr(os, "getxattr", None)
        if getxattr is None:
            return False  # only Linux has this function
        try:
            entries = struct.iter_unpack("<HHI", getxattr(folder, "system.posix_acl_access")[4:])
            return any(tag in _NAMED and rights & 2 for tag, rights, _ in entries)
        except (OSError, struct.error):  # there is no ACL
            return False

    def _is_private(group: int) -> bool:
        """Whether only this user and root are in a group: on many systems, each user has one."""
        if group == 0:
            return True
        try:
            import grp
            import pwd

            user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
        except (ImportError, KeyError):
            return False
        return group == user.pw_gid and found.gr_name == user.pw_name and not {*found.gr_mem} - {user.pw_name}
