"""An hour of faults at random, in three lanes at the same time: see `tests/integration/weather`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from weather import play_weather

HOUR = 3600.0


@pytest.mark.timeout(5400)
@pytest.mark.parametrize(("lane", "kind"), list(enumerate(("supervised", "supervised", "linked"))))
def test_an_hour_of_weather_ends_no_job_wrongly(
    lane: int,
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    play_weather(kind, HOUR, tmp_path, monkeypatch, record_property, lane)
