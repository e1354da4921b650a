"""The record of the checkpoint files that a host has downloaded or uploaded: later, only the others are uploaded."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from cloudtrain._system.safe_open import Beneath
from cloudtrain.contract.paths import Paths
from cloudtrain.storage.atomic import replace_file

LARGEST_RECORD = 64 << 20
"""In bytes."""

State = tuple[int, int]
"""Size of a file, and its modification time in nanoseconds."""


def record_path(paths: Paths) -> Path:
    """Where the host keeps its record. A new attempt removes it."""
    return paths.output / "checkpoints.json"


def write_record(path: Path, files: Mapping[str, State]) -> None:
    """Write the states that files had when they were downloaded or uploaded, by key. Does nothing on a full disk."""
    with contextlib.suppress(OSError):
        replace_file(path, json.dumps(files).encode())


def read_record(paths: Paths) -> dict[str, State] | None:
    """The inverse of `write_record`; None if there is no valid record. The script may have written there too."""
    path = record_path(paths)
    try:
        with Beneath(paths.base) as base:
            data = base.read(path.relative_to(paths.base).as_posix(), LARGEST_RECORD)
        return {str(key): (int(size), int(time)) for key, (size, time) in json.loads(data).items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None
