"""Trees to pack, and a look into what came of them."""

from __future__ import annotations

import os
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path


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


def wait_until_settled(root: Path) -> None:
    """Until no file's last change is so recent that a second one could go unnoticed."""
    newest = max(path.lstat().st_ctime for path in root.rglob("*"))
    time.sleep(max(0.0, newest + 2.1 - time.time()))


def leftovers(cache: Path) -> list[str]:
    """What a broken-off packing has left in the cache."""
    return [name for _, _, files in os.walk(cache) for name in files if name.startswith(".tmp-")]
