"""What a folder of checkpoints has that its store does not list: files that were never finished, empty folders."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cloudtrain.checkpoint.layout import step_of
from cloudtrain.storage.atomic import is_temporary
from cloudtrain.storage.base import Entry

ABANDONED_SECONDS = 86400.0
"""No save is so long about one object: whoever began it was killed."""


@dataclass(frozen=True)
class Remains:
    """What nobody has touched for a day."""

    files: tuple[Entry, ...] = ()
    """Never finished."""
    folders: tuple[str, ...] = ()
    """With nothing in them; relative to the checkpoints' folder."""


def find_remains(folder: Path) -> Remains:
    """The remains in the folders of all steps."""
    files: list[Entry] = []
    empty: list[str] = []
    for path, inner, names in os.walk(folder, topdown=False):
        base = os.path.relpath(path, folder)
        if step_of(f"{base}/") is None:
            continue
        with contextlib.suppress(FileNotFoundError):  # its writer lives, or somebody else prunes
            if (
                not names
                and all(f"{base}/{name}" in empty for name in inner)
                and _age(path) > ABANDONED_SECONDS
            ):
                empty.append(base)
        for name in filter(is_temporary, names):
            with contextlib.suppress(FileNotFoundError):
                if _age(f"{path}/{name}") > ABANDONED_SECONDS:
                    files.append(Entry(f"{base}/{name}", os.lstat(f"{path}/{name}").st_size))
    return Remains(tuple(sorted(files, key=lambda entry: entry.key)), tuple(empty))


def remove_empty(folder: Path, names: Iterable[str]) -> None:
    """Remove those of these folders that are empty, and then those around them, below ``folder``."""
    for name in names:
        with contextlib.suppress(OSError):
            for path in (folder / name, *(folder / name).parents):
                if path == folder:
                    break
                path.rmdir()


def _age(path: str) -> float:
    """Seconds since it was written to."""
    return time.time() - os.lstat(path).st_mtime
