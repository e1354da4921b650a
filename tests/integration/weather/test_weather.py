"""Minutes of faults at random: no wrong end, no step lost, no state torn, nothing left behind.

`CLOUDTRAIN_WEATHER` sets the seconds of each kind, `CLOUDTRAIN_SEED` draws other faults. CI plays 40 seconds, which
mostly wait. `./scripts/soak` plays an hour.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from weather import play_weather

SECONDS = 80.0
"""Of both kinds together."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["supervised", pytest.param("linked", marks=pytest.mark.soak)])
def test_weather_ends_no_job_wrongly(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    play_weather(kind, SECONDS / 2, tmp_path, monkeypatch, record_property)
