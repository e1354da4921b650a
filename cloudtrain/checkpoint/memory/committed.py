"""Records the newest step that was committed to a storage, for a host that cannot reach the storage.

    <uri>.committed    the step, -1 for none, and its hash

The file is next to the copies in memory, and is sent to other hosts with them. It prevents a copy of an earlier step
from being restored instead of a checkpoint that only the storage has. If the storage answers and lacks the step, the
step has been deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from cloudtrain._system.files import read_regular
from cloudtrain._system.patterns import pattern
from cloudtrain.checkpoint.memory.files import name_of, write_whole

SUFFIX = ".committed"
_NAME = pattern(r"([0-9a-f]{16})\.committed")


def read_committed(folder: Path, uri: str) -> int | None:
    """The newest step known to be committed at ``uri``, -1 if it had none; None if there is no record."""
    return _read(folder / f"{name_of(uri)}{SUFFIX}")


def write_committed(folder: Path, uri: str, step: int | None) -> None:
    """Replace what `read_committed` returns. Does nothing where the memory is full."""
    if read_committed(folder, uri) != step:
        _write(folder / f"{name_of(uri)}{SUFFIX}", step)


def all_committed(folder: Path) -> dict[str, int]:
    """The newest committed steps in ``folder``, by the first part of the names of copies. Raises OSError."""
    found = (
        (match[1], _read(folder / match[0])) for match in map(_NAME.fullmatch, os.listdir(folder)) if match
    )
    return {name: step for name, step in found if step is not None}


def replace_all(folder: Path, known: dict[str, int]) -> None:
    """Replace what `all_committed` returns."""
    before = all_committed(folder)
    for name in before.keys() | known.keys():
        if _NAME.fullmatch(f"{name}{SUFFIX}") and before.get(name) != known.get(name):
            _write(folder / f"{name}{SUFFIX}", known.get(name))


def _read(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        step, _, digest = read_regular(path, 1000).decode().partition(" ")
        if digest == _digest(int(step)):
            return int(step)
    return None


def _write(path: Path, step: int | None) -> None:
    with contextlib.suppress(OSError):
        if step is None:
            path.unlink()
        else:
            write_whole(path, f"{step} {_digest(step)}".encode())


def _digest(step: int) -> str:
    return hashlib.sha256(str(step).encode()).hexdigest()
