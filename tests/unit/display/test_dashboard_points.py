"""The points of plots: no spike vanishes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from hypothesis import given, strategies

from cloudtrain.observe.metric_series import RECENT, MetricReader, Point, thinned
from cloudtrain.watch.dashboard.points import plot


def events(values: list[float]) -> Iterator[dict[str, Any]]:
    for step, value in enumerate(values):
        yield {"time": float(step), "event": "metric", "name": "loss", "value": value, "step": step}


@given(strategies.lists(strategies.floats(), max_size=300), strategies.integers(1, 40))
def test_the_smallest_and_the_largest_value_are_drawn(values: list[float], parts: int) -> None:
    points = [Point(float(place), value, place) for place, value in enumerate(values)]
    kept = [*thinned(points, parts)]
    assert kept == sorted(kept, key=lambda point: point.time) and set(kept) <= set(points)
    assert len(kept) <= 3 * parts
    finite = [value for value in values if math.isfinite(value)]
    drawn = [point.value for point in kept if math.isfinite(point.value)]
    if finite:
        assert (min(drawn), max(drawn)) == (min(finite), max(finite))
    assert (len(finite) == len(values)) == (len(drawn) == len(kept))


def test_forged_times_that_are_almost_the_same_are_thinned() -> None:
    assert [point.value for point in thinned([Point(0.0, 1.0), Point(5e-324, 2.0)], 10)] == [1.0, 2.0]


def test_a_million_values_are_thinned_while_they_are_read() -> None:
    values = [math.sin(step) for step in range(200_000)]
    values[3] = -9.0
    values[150_000] = 9.0
    reader = MetricReader(parts=100)
    for event in events(values):
        reader.add(event)
    kept = reader.series()["loss"]
    assert reader.counts() == {"loss": 200_000}
    assert len(kept) <= 8 * 100 + RECENT
    assert (kept[1].value if kept[1].step == 3 else min(point.value for point in kept)) == -9.0
    assert max(kept, key=lambda point: point.value).step == 150_000
    assert [point.step for point in kept] == sorted(point.step or 0 for point in kept)
    for event in [{"event": "attempt"}, *events(values)][:10]:  # a new attempt begins again
        reader.add(event)
    assert [point.step for point in reader.series()["loss"]] == [*range(9)]


def test_a_spike_in_many_values() -> None:
    points = [Point(float(number), 0.5, number) for number in range(100_000)]
    points[77_777] = Point(77_777.0, 9.0, 77_777)
    points[50_000] = Point(50_000.0, math.nan, 50_000)
    drawn = plot(points)
    assert drawn["count"] == 100_000
    assert len(drawn["x"]) <= 2002
    assert drawn["y"][drawn["x"].index(77_777)] == 9.0
    assert drawn["y"][drawn["x"].index(50_000)] is None


def test_ranks_and_times() -> None:
    drawn = plot([Point(1.0, 2.0, 1, 1.0, 3.0), Point(2.0, 2.0, 2)])
    assert (drawn["low"], drawn["high"]) == ([1.0, None], [3.0, None])
    assert plot([Point(5.0, 1.0)])["x"] == [5.0]


def test_a_rank_that_diverged() -> None:
    drawn = plot([Point(1.0, math.nan, 1, math.nan, math.inf), Point(2.0, 2.0, 2, 1.0, 3.0)])
    assert (drawn["low"], drawn["high"]) == ([None, 1.0], [None, 3.0])
    json.dumps(drawn, allow_nan=False)
