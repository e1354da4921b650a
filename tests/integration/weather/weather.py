"""Injects faults of network, disks and hosts, and fails if they did any harm."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from end_of_run import FIGURES
from host_network import NetworkError
from weather_figures import Figures
from weather_links import play_links
from weather_rounds import play, surroundings

SEED = 1


def play_weather(
    kind: str,
    seconds: float,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
    lane: int = 0,
) -> None:
    """Play one lane.

    Args:
        kind: ``supervised``, jobs on the local platform with checkpoints in S3; or ``linked``, jobs on two hosts.
        lane: lanes that run at the same time draw different faults.
    """
    seed = int(os.environ.get("CLOUDTRAIN_SEED") or SEED) + 1000 * lane
    seconds = float(os.environ.get("CLOUDTRAIN_WEATHER") or seconds)
    print(f"CLOUDTRAIN_SEED={seed}")
    figures = Figures()
    if kind == "linked":
        try:
            play_links(folder, seed, seconds, figures)
        except NetworkError as error:
            assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", str(error)
            pytest.skip(str(error))
    else:
        with surroundings(folder, monkeypatch) as around:
            play(around, seed, seconds, figures)
    record_property(FIGURES, f"{kind}, CLOUDTRAIN_SEED={seed}: {figures}")
    assert not figures.violations, str(figures)
