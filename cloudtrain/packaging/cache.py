"""Where this machine keeps packed sources."""

from __future__ import annotations

from pathlib import Path

from cloudtrain.storage import state_home

FILE_NAME = "sourcedir.tar.gz"


def archives_home() -> Path:
    """The folder of all source archives of this user."""
    return state_home() / "archives"


def cached_archive(sha256: str) -> Path:
    """The path of the source archive with this hash. It may have been removed."""
    return archives_home() / sha256 / FILE_NAME
