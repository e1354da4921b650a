"""The values of each metric of a job over time, from its events."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class Point(NamedTuple):
    """The value of a metric at one time. All fields but the first two are known only for ``cloudtrain.log``."""

    time: float
    """Seconds since the epoch."""
    value: float
    """The mean of all ranks that logged the step."""
    step: int | None = None
    min: float | None = None
    max: float | None = None
    """The smallest and the largest value of a rank; None if one rank logged the step."""
    ranks: int = 1
    """How many ranks logged the step."""
    slowest: int | None = None
    """The rank that logged the step last."""
    lag: float | None = None
    """Seconds between the first and the last rank of the host that logged the step last."""


def metric_series(events: Iterable[dict[str, Any]]) -> dict[str, list[Point]]:
    """The values of each metric, in order.

    Each host reports the values of its ranks, and those of one step are combined. If a host repeats a step after a
    restart, the new value replaces all values from this step on.
    """
    reader = MetricReader()
    for event in events:
        reader.add(event)
    return reader.series()


RECENT = 1000
"""The number of last values of a metric that are not thinned while it is read, because values of other hosts, or of a
later attempt, may change them."""


class MetricReader:
    """Reads the metrics of a job from its events, in order.

    Args:
        parts: thin each metric to about this many parts, as `thinned` does; 0: keep all values.
    """

    def __init__(self, parts: int = 0) -> None:
        self._parts = parts
        self._found: dict[str, _Series] = {}

    def add(self, event: dict[str, Any]) -> None:
        if event["event"] == "attempt":
            for series in self._found.values():
                series.begin_attempt()
        elif event["event"] == "metric":
            series = self._found.setdefault(event["name"], _Series())
            series.add(event)
            if self._parts and len(series.points) > 8 * self._parts + RECENT:
                series.thin(self._parts)

    def series(self) -> dict[str, list[Point]]:
        """The values of each metric so far. Another thread may call it."""
        return {name: [*series.points] for name, series in [*self._found.items()]}

    def counts(self) -> dict[str, int]:
        """How many values each metric has, including those that were thinned out."""
        return {name: len(series.points) + series.left_out for name, series in [*self._found.items()]}


def thinned(points: Sequence[Point], parts: int) -> Sequence[Point]:
    """The points to draw, out of many. For each of ``parts`` equal parts of the axis, they are the points with the
    smallest and the largest value, of the mean and of single ranks, and the first one without a finite value. The axis
    has steps, or times where there are no steps."""
    if len(points) <= 2 * parts:
        return points
    by_step = all(point.step is not None for point in points)
    across = [float(point.step or 0) if by_step else point.time for point in points]
    begin, length = min(across), max(across) - min(across)
    scale = parts / max(length, 1e-300)  # finite, also for forged times that are almost the same
    groups: dict[int, list[int]] = {}
    for place, at in enumerate(across):
        group = min(int((at - begin) * scale), parts - 1)
        if group in groups:
            groups[group].append(place)
        else:
            groups[group] = [place]
    kept: set[int] = set()
    for members in groups.values():
        values = [points[place].value for place in members]
        if not math.isfinite(sum(values)):
            kept.add(next((place for place in members if not math.isfinite(points[place].value)), members[0]))
            members = [place for place in members if math.isfinite(points[place].value)]
            values = [points[place].value for place in members]
        if values:
            kept.add(members[values.index(min(values))])
            kept.add(members[values.index(max(values))])
            spread = [place for place in members if points[place].min is not None]
            if spread:
                kept.add(min(spread, key=lambda place: points[place].min or 0.0))
                kept.add(max(spread, key=lambda place: points[place].max or 0.0))
    return [points[place] for place in sorted(kept)]


class _Series:
    """One metric."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._steps: list[int] = []
        """The steps of ``points``, if they have steps: sorted."""
        self._last: dict[str, int] = {}
        """The last step of each host."""
        self._is_new_attempt = False
        self.left_out = 0
        """The values that `thin` has removed."""

    def begin_attempt(self) -> None:
        """Begin a new attempt, maybe on other hosts, whose first step replaces all values from there on."""
        self._last.clear()
        self._is_new_attempt = True

    def add(self, event: dict[str, Any]) -> None:
        step, host = event.get("step"), event.get("source", "")
        if step is None:
            if not self._steps:
                self.points.append(Point(event["time"], event["value"]))
            return
        if not self._steps:  # the script also prints this metric
            self.points.clear()
            self.left_out = 0
        if not event.get("late"):
            if self._is_new_attempt or step <= self._last.get(host, step - 1):
                self._is_new_attempt = False
                self._drop_from(step)
            self._last[host] = step
        position = bisect_left(self._steps, step)
        point = _point(event)
        if position < len(self._steps) and self._steps[position] == step:
            self.points[position] = _combined(self.points[position], point)
        else:
            self._steps.insert(position, step)
            self.points.insert(position, point)

    def thin(self, parts: int) -> None:
        """Leave out values that a plot of ``parts`` parts does not show."""
        points = [*thinned(self.points[:-RECENT], parts), *self.points[-RECENT:]]
        self.left_out += len(self.points) - len(points)
        self.points = points
        self._steps = [point.step for point in points if point.step is not None]

    def _drop_from(self, step: int) -> None:
        position = bisect_left(self._steps, step)
        del self.points[position:], self._steps[position:]
        self._last = {host: min(last, step - 1) for host, last in self._last.items()}


def _point(event: dict[str, Any]) -> Point:
    value = event["value"]
    slowest = event.get("rank") if event.get("slowest") is None else event["slowest"]
    return Point(
        event["time"],
        value,
        event["step"],
        event.get("min"),
        event.get("max"),
        event.get("ranks") or 1,
        slowest,
        event.get("lag"),
    )


def _combined(first: Point, second: Point) -> Point:
    """One point for a step of two hosts. Their clocks may differ, so the lag is that of one host."""
    ranks = first.ranks + second.ranks
    last = max(first, second, key=lambda point: point.time)
    lows = [point.value if point.min is None else point.min for point in (first, second)]
    highs = [point.value if point.max is None else point.max for point in (first, second)]
    mean = (first.value * first.ranks + second.value * second.ranks) / ranks
    return last._replace(value=mean, min=min(lows), max=max(highs), ranks=ranks)
