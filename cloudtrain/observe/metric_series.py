"""The values of each metric of a job over time, from its events."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, NamedTuple


class Point(NamedTuple):
    """The value of a metric at one time. All but the first two are known only for what ``cloudtrain.log`` logged."""

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

    Each host reports the values of its ranks: those of one step are combined. If a host reports a step again, after a
    restart, this replaces all values from this step on.
    """
    found: dict[str, _Series] = {}
    for event in events:
        if event["event"] == "attempt":
            for series in found.values():
                series.begin_attempt()
        elif event["event"] == "metric":
            found.setdefault(event["name"], _Series()).add(event)
    return {name: series.points for name, series in found.items()}


class _Series:
    """One metric."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._steps: list[int] = []
        """The steps of ``points``, if they have steps: sorted."""
        self._last: dict[str, int] = {}
        """The last step of each host."""
        self._is_new_attempt = False

    def begin_attempt(self) -> None:
        """A new attempt, maybe on other hosts: its first step replaces all values from there on."""
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
    """One point for the same step on two hosts, whose clocks may differ: the lag is that of one host."""
    ranks = first.ranks + second.ranks
    last = max(first, second, key=lambda point: point.time)
    lows = [point.value if point.min is None else point.min for point in (first, second)]
    highs = [point.value if point.max is None else point.max for point in (first, second)]
    mean = (first.value * first.ranks + second.value * second.ranks) / ranks
    return last._replace(value=mean, min=min(lows), max=max(highs), ranks=ranks)
