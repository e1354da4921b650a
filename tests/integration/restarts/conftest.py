"""Starts the hosts of jobs whose platform starts all of them again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pods import Pods


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Callable[..., Pods]]:
    """``pods(script, **arguments)``: see `Pods`. What still runs at the end is killed."""
    made: list[Pods] = []

    def make(script: str, **arguments: Any) -> Pods:
        made.append(Pods(tmp_path / f"job-{len(made)}", script, **arguments))
        return made[-1]

    yield make
    for job in made:
        job.end()
