"""The table of ``cloudtrain metrics``."""

from __future__ import annotations

import math

import pytest

from cloudtrain.cli.jobs import _show_metrics as show_metrics
from cloudtrain.observe.metric_series import Point


def test_the_smallest_and_largest_values_are_finite_ones(capsys: pytest.CaptureFixture[str]) -> None:
    values = (math.nan, 2.0, 1.0, math.inf, 3.0)
    show_metrics("a-job", {"loss": [Point(float(time), value) for time, value in enumerate(values)]})
    assert capsys.readouterr().out.splitlines()[1].split()[:5] == ["loss", "3", "1", "3", "5"]
