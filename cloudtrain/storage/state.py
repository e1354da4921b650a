"""The folder in which cloudtrain keeps its state on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from cloudtrain._system.folders import make_private
from cloudtrain._system.owned import FolderIsOpen
from cloudtrain.errors import StorageError

CONTENT = ("archives", "data", "environments", "index.db", "jobs", "ranks-key", "runtime", "s3", "steps")
"""Some names that cloudtrain gives to files and folders in it."""

_checked: set[Path] = set()
"""The folders that this process has found safe."""


def state_home() -> Path:
    """The user's state folder, with access for the user only. It is created if it does not exist.

    ``$CLOUDTRAIN_HOME``, else ``$XDG_STATE_HOME/cloudtrain``, else ``~/.local/state/cloudtrain`` (XDG Base
    Directory Specification: a relative ``$XDG_STATE_HOME`` counts as unset). A folder that others can read is closed to
    them. Raises StorageError if it cannot be created, or if others may have changed it.
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
            make_private(folder, CONTENT)
            _checked.add(folder)
    except FolderIsOpen as error:
        raise StorageError(
            f"the state folder {folder} {error.problem}", hint=f"{error.hint} CLOUDTRAIN_HOME names it."
        ) from None
    except (OSError, RuntimeError) as error:
        hint = "Set CLOUDTRAIN_HOME to a folder that you can write to."
        raise StorageError(f"the state folder {folder} cannot be used: {error}", hint=hint) from error
    return folder
