"""The folder in which cloudtrain keeps its state on this machine."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from cloudtrain._system.users import ROOT, home, owns, user_id
from cloudtrain.errors import StorageError

CONTENT = ("archives", "data", "environments", "index.db", "jobs", "ranks-key", "runtime", "s3")
"""Some names that cloudtrain gives to files and folders in it."""

_OTHERS = 0o077
_OTHERS_WRITE = 0o022
_OWN_FOLDER = "Set CLOUDTRAIN_HOME to a folder of your own, which others can neither read nor change."

_checked: set[Path] = set()
"""The folders that this process has found safe."""


def state_home() -> Path:
    """The user's state folder, with access for the user only. It is created if it does not exist.

    ``$CLOUDTRAIN_HOME``, else ``$XDG_STATE_HOME/cloudtrain``, else ``~/.local/state/cloudtrain`` (XDG Base
    Directory Specification: a relative ``$XDG_STATE_HOME`` counts as unset). A folder that others can read is closed to
    them. Raises StorageError if it cannot be created, or if others can have changed it.
    """
    given = os.environ.get("CLOUDTRAIN_HOME")
    xdg = os.environ.get("XDG_STATE_HOME", "")
    if given:
        folder = Path(given)
    elif os.path.isabs(xdg):
        folder = Path(xdg, "cloudtrain")
    else:
        folder = Path("~/.local/state/cloudtrain")
    try:
        folder = folder.expanduser().absolute()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder not in _checked:
            if sys.platform != "win32":
                _protect(folder)
            _checked.add(folder)
    except StorageError:
        raise
    except (OSError, RuntimeError) as error:
        hint = "Set CLOUDTRAIN_HOME to a folder that you can write to."
        raise StorageError(f"the state folder {folder} cannot be used: {error}", hint=hint) from error
    return folder


def _protect(folder: Path) -> None:
    """Close the folder to other users. Raises StorageError if one of them can replace it, or can have changed it."""
    link = os.lstat(folder)
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in (user_id(), ROOT):
        raise StorageError(f"the state folder {folder} is a link of another user", hint=_OWN_FOLDER)
    for parent in Path(os.path.realpath(folder)).parents:
        mode = os.stat(parent).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise StorageError(
                f"other users can replace the state folder {folder}: all may write to {parent}",
                hint=f"Change that with: chmod o-w {parent}. Or: {_OWN_FOLDER}",
            )
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _close(folder, descriptor)
    finally:
        os.close(descriptor)


def _close(folder: Path, descriptor: int) -> None:
    """Close the folder that is open as ``descriptor``, and whose path is ``folder``."""
    status = os.fstat(descriptor)
    if not owns(status):
        raise StorageError(f"the state folder {folder} belongs to another user", hint=_OWN_FOLDER)
    if not status.st_mode & _OTHERS:
        return
    names = os.listdir(descriptor)
    is_shared = status.st_mode & stat.S_ISVTX or f"{home()}/".startswith(f"{folder}/")
    if is_shared or (names and not set(names) & set(CONTENT)):
        raise StorageError(
            f"other users can read {folder}, which is not a folder of cloudtrain alone",
            hint="Set CLOUDTRAIN_HOME to another folder, for example a new one in this folder.",
        )
    if status.st_mode & _OTHERS_WRITE:
        strange = next((name for name in names if not owns(_status(name, descriptor))), None)
        if strange is not None:
            raise StorageError(
                f"other users can write to the state folder {folder}, and {strange!r} in it belongs to one of them",
                hint=f"Remove what is not yours, and then: chmod 700 {folder}",
            )
    os.fchmod(descriptor, 0o700)
    if names:
        sys.stderr.write(f"[cloudtrain] other users could read {folder}: it is closed to them now\n")


def _status(name: str, descriptor: int) -> os.stat_result:
    return os.stat(name, dir_fd=descriptor, follow_symlinks=False)
