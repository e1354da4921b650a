"""Helpers that create source trees, and inspect their archives."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Mapping
from pathlib import Path

from cloudtrain.storage.atomic import is_temporary


def make_tree(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write ``files``, path -> content, below ``root``; a path with a slash at its end is a folder."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def names(archive: Path) -> list[str]:
    """The names of the files and links in the archive, sorted."""
    with tarfile.open(archive) as tar:
        return sorted(member.name for member in tar if not member.isdir())


def content(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as tar:
        file = tar.extractfile(name)
        assert file is not None
        return file.read()


def leftovers(cache: Path) -> list[str]:
    """The files that an interrupted packing left in the cache."""
    return [name for _, _, files in os.walk(cache) for name in files if is_temporary(name)]
