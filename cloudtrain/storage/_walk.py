"""The files of a folder, in the order of their keys."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from cloudtrain.storage.atomic import is_temporary
from cloudtrain.storage.base import ObjectInfo


def walk(folder: Path, prefix: str = "") -> Iterator[ObjectInfo]:
    """All regular files below ``folder`` whose key starts with ``prefix``, sorted by key.

    Follows symbolic links, except to a parent folder. Skips broken links, special files such as sockets, temporary
    files, and files that disappear during the walk. Raises OSError for a folder that cannot be read.
    """
    above: tuple[str, ...] = (os.path.realpath(folder),)
    base = prefix[: prefix.rfind("/") + 1]
    if base and any(part in ("", ".", "..") for part in base[:-1].split("/")):
        return  # no key starts like this
    if base and os.path.realpath(folder / base) not in above:
        above += (os.path.realpath(folder / base),)
    pending = [(key, child, above) for key, child in _children(folder / base, base)]
    while pending:
        key, child, above = pending.pop()
        if key.endswith("/"):
            real = os.path.realpath(child.path)
            if real not in above and (key.startswith(prefix) or prefix.startswith(key)):
                pending += [(*found, (*above, real)) for found in _children(child.path, key)]
        elif key.startswith(prefix) and not is_temporary(child.name):
            with contextlib.suppress(FileNotFoundError):
                if child.is_file():
                    status = child.stat()
                    yield ObjectInfo(key, status.st_size, status.st_mtime)


def _children(folder: str | Path, base: str) -> list[tuple[str, os.DirEntry[str]]]:
    """The entries of ``folder`` with their keys, the first key last; nothing if the folder is gone."""
    try:
        with os.scandir(folder) as found:
            children = [(base + child.name + ("/" if child.is_dir() else ""), child) for child in found]
    except FileNotFoundError:
        return []
    return sorted(children, key=lambda pair: pair[0], reverse=True)
