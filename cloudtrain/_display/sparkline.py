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
    points = averaged(values, width)
    finite = [point for point in points if math.isfinite(point)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    return "".join(_bar(point, low, high) for point in points)


def averaged(values: Sequence[float], count: int) -> list[float]:
    """At most ``count`` points: the means of the finite values of equal parts; NaN for a part without any."""
    return [_mean(part) for part in _parts(values, count)]


def _parts(values: Sequence[float], width: int) -> list[Sequence[float]]:
    count = min(len(values), width)
    edges = [number * len(values) // count for number in range(count + 1)] if count else []
    return [values[start:end] for start, end in pairwise(edges)]


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(value / len(finite) for value in finite) if finite else math.nan  # their sum may be infinite


def _bar(point: float, low: float, high: float) -> str:
    if not math.isfinite(point):
        return " "
    return BARS[round(share(point, low, high) * (len(BARS) - 1))]


def share(point: float, low: float, high: float) -> float:
    """The place of ``point`` between ``low`` and ``high``: from 0 to 1. All are finite; 0 if there is no difference."""
    scale = max(abs(low), abs(high)) or 1.0  # the difference of two finite numbers may be infinite
    length = high / scale - low / scale
    return min((point / scale - low / scale) / length, 1.0) if length else 0.0
