"""The course of a metric in constant memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

MOST_POINTS = 80
"""Twice the width of a sparkline."""


@dataclass
class Trend:
    """Means of equally many values each: at most `MOST_POINTS`, however many values there are."""

    points: list[tuple[float, float]] = field(default_factory=list)
    """The time of the last value, in seconds since the epoch, and the mean of those that are finite (else NaN)."""
    size: int = 1
    """The number of values in each point; the values of an unfinished one are in `total`."""
    total: float = 0.0
    finite: int = 0
    count: int = 0
    """The number of values in `total`, and of those among them that are finite."""

    def add(self, time: float, value: float) -> None:
        self.count += 1
        if math.isfinite(value):
            self.total += value
            self.finite += 1
        if self.count < self.size:
            return
        self.points.append((time, self._mean()))
        self.total, self.finite, self.count = 0.0, 0, 0
        if len(self.points) == MOST_POINTS:
            self.size *= 2
            pairs = zip(self.points[::2], self.points[1::2])
            self.points = [(second[0], _mean(first[1], second[1])) for first, second in pairs]

    def series(self, time: float) -> list[tuple[float, float]]:
        """The points, and one for the latest values, which gets this ``time``."""
        return [*self.points, (time, self._mean())] if self.count else list(self.points)

    def _mean(self) -> float:
        return self.total / self.finite if self.finite else math.nan

    def to_list(self) -> list[Any]:
        return [self.points, self.size, self.total, self.finite, self.count]

    @classmethod
    def from_list(cls, data: list[Any]) -> Trend:
        """The inverse of `to_list`. Raises TypeError or ValueError."""
        points, *rest = data
        return cls([(time, value) for time, value in points], *rest)


def _mean(first: float, second: float) -> float:
    finite = [value for value in (first, second) if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan
