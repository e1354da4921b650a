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
    if math.isclose(low, high, rel_tol=1e-12):  # the means of equal values differ in their last digit
        high = low
    return "".join(_bar(point, low, high) for point in points)


def timed_sparkline(
    points: Sequence[tuple[float, float]], start: float, end: float, width: int, high: float
) -> str:
    """One bar for each equal part of the time from ``start`` to ``end``: the mean of its values, from 0 to ``high``.

    A part without a value is a gap, unless both of its neighbours have values: they do not arrive at exact times.

    >>> timed_sparkline([(0, 10), (1, 100), (3, 100), (6, 55)], 0, 8, 8, 100)
    '▂███  ▅ '
    """
    parts: list[list[float]] = [[] for _ in range(width)]
    for time, value in points:
        if start <= time <= end:
            parts[min(int((time - start) / (end - start) * width), width - 1)].append(value)
    means = [_mean(part) for part in parts]
    for number in range(1, width - 1):
        if not parts[number] and parts[number - 1] and parts[number + 1]:
            means[number] = means[number - 1]
    return "".join(_bar(min(mean, high), 0.0, high) for mean in means)


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
