"""The user of this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = 0


def folder_of_user() -> Path:
    """A folder for temporary files that no other user can change. Raises FolderIsOpen or OSError."""
    import tempfile

    from cloudtrain._system.owned import own_folder

    return Path(own_folder(Path(tempfile.gettempdir(), f"cloudtrain-{user_id()}"), create=True))


if sys.platform == "win32":

    def user_id() -> int:
        """The number of this process's user; -1 on Windows, where users have none."""
        return -1

    def group_id() -> int:
        return -1

    def user_name(number: int) -> str:
        """The name of the user with this number. Raises KeyError if there is none."""
        raise KeyError(number)

    def owns(status: os.stat_result) -> bool:
        """Whether a file belongs to this process's user: unknown on Windows, so not denied."""
        return True

    def home(environ: Mapping[str, str] = os.environ) -> Path:
        """The user's home folder, as its variable names it."""
        return Path(environ.get("USERPROFILE", "/"))

else:

    def user_id() -> int:
        """The number of this process's user."""
        return os.getuid()

    def group_id() -> int:
        return os.getgid()

    def user_name(number: int) -> str:
        """The name of the user with this number. Raises KeyError if there is none."""
        import pwd  # imported here: a minimal Python lacks it

        return pwd.getpwuid(number).pw_name

    def owns(status: os.stat_result) -> bool:
        """Whether a file belongs to this process's user."""
        return status.st_uid == os.getuid()

    def home(environ: Mapping[str, str] = os.environ) -> Path:
        """The user's home folder, as its variable names it."""
        return Path(environ.get("HOME", "/"))
