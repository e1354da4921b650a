"""Sparklines: plots in one line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 40


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """One bar per value. More than ``width`` values are averaged in groups. NaN and infinity leave a gap.

    >>> sparkline([3, 2, 1, 1, 4])
    '▆▃▁▁█'
    """
    points = [_mean(part) for part in _parts(values, width)]
    finite = [point for point in points if math.isfinite(point)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    return "".join(_bar(point, low, high) for point in points)


def _parts(values: Sequence[float], width: int) -> list[Sequence[float]]:
    count = min(len(values), width)
    edges = [number * len(values) // count for number in range(count + 1)] if count else []
    return [values[start:end] for start, end in pairwise(edges)]


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


def _bar(point: float, low: float, high: float) -> str:
    if not math.isfinite(point):
        return " "
    if high == low:
        return BARS[0]
    return BARS[round((point - low) / (high - low) * (len(BARS) - 1))]
