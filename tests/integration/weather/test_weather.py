"""Five minutes of faults at random: no wrong end, no step lost, no state torn, nothing left behind.

`CLOUDTRAIN_WEATHER` sets the seconds, `CLOUDTRAIN_SEED` draws other faults. `./scripts/soak` plays an hour.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from end_of_run import FIGURES
from weather_figures import Figures
from weather_rounds import play, surroundings

SEED = 1
SECONDS = 300.0


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_weather_ends_no_job_wrongly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    seed = int(os.environ.get("CLOUDTRAIN_SEED") or SEED)
    print(f"CLOUDTRAIN_SEED={seed}")
    figures = Figures()
    with surroundings(tmp_path, monkeypatch) as around:
        play(around, seed, float(os.environ.get("CLOUDTRAIN_WEATHER") or SECONDS), figures)
    record_property(FIGURES, f"CLOUDTRAIN_SEED={seed}: {figures}")
    assert not figures.violations, str(figures)
