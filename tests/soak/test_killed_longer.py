"""The kills of a training that CI leaves out: 185, which follow its 15."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fault_places import PLACES
from killed_training import KILLS, KILLS_IN_CI, kill_trainings


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PLACES)
def test_nothing_durable_is_lost(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    kill_trainings(name, tmp_path, record_property, KILLS - KILLS_IN_CI, after=KILLS_IN_CI)
