"""The folder in which cloudtrain keeps its state on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from cloudtrain.errors import StorageError


def state_home() -> Path:
    """The user's state folder, created with access for the user only if it does not exist.

    ``$CLOUDTRAIN_HOME``, else ``$XDG_STATE_HOME/cloudtrain``, else ``~/.local/state/cloudtrain`` (XDG Base
    Directory Specification: a relative ``$XDG_STATE_HOME`` counts as unset). Raises StorageError if it cannot be
    created.
    """
    home = os.environ.get("CLOUDTRAIN_HOME")
    xdg = os.environ.get("XDG_STATE_HOME", "")
    if home:
        folder = Path(home)
    elif os.path.isabs(xdg):
        folder = Path(xdg, "cloudtrain")
    else:
        folder = Path("~/.local/state/cloudtrain")
    try:
        folder = folder.expanduser().absolute()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        hint = "Set CLOUDTRAIN_HOME to a folder that you can write to."
        raise StorageError(f"the state folder {folder} cannot be used: {error}", hint=hint) from error
    return folder
