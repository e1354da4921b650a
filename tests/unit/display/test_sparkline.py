"""Sparklines."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings, strategies as st

from cloudtrain._display.sparkline import BARS, sparkline


@pytest.mark.parametrize(
    ("values", "bars"),
    [
        ([], ""),
        ([7], "▁"),
        ([5, 5, 5], "▁▁▁"),
        ([0, 1], "▁█"),
        ([1, 0], "█▁"),
        ([0, 7, 14, 21, 28, 35, 42, 49], BARS),
        ([0, math.nan, 1, math.inf], "▁ █ "),
        ([math.nan], " "),
        ([-1.7e308, 1.7e308], "▁█"),
    ],
)
def test_a_bar_for_each_value(values: list[float], bars: str) -> None:
    assert sparkline(values) == bars


def test_many_values_share_a_bar() -> None:
    assert sparkline([0, 0, 1, 1, 0, 2], width=3) == "▁██"


@settings(deadline=None)
@given(st.lists(st.floats(), min_size=1, max_size=200), st.integers(1, 50))
def test_a_plot_is_never_wider(values: list[float], width: int) -> None:
    assert len(sparkline(values, width)) == min(len(values), width)


def test_means_of_equal_values_are_equal() -> None:
    """Whatever the rounding of their sums."""
    assert sparkline([0.001] * 739, width=60) == "▁" * 60
