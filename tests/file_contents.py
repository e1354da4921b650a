"""The contents of files in a folder from which other processes may remove some."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def file_contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """All regular files below a folder and their contents, except those that are removed meanwhile."""
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file():
                    yield path, path.read_bytes()
