"""The folder in which a host keeps copies of checkpoints in memory, for tests of processes without a runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudtrain.checkpoint.memory.files import SPACE, VARIABLE


def make_host_memory(folder: Path, monkeypatch: pytest.MonkeyPatch, space: int = 1 << 30) -> Path:
    """Make ``folder`` that of this process and those it starts, with ``space`` bytes for copies."""
    folder.mkdir(0o700)
    (folder / SPACE).write_text(str(space))
    monkeypatch.setenv(VARIABLE, str(folder))
    return folder
