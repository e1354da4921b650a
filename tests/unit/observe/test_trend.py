"""The course of a metric in constant memory."""

from __future__ import annotations

import json
import math

import pytest

from cloudtrain.observe.summary import MOST_POINTS, Trend


@pytest.mark.parametrize("count", [1, 39, MOST_POINTS, 1000, 12_345])
def test_a_trend_has_the_means_of_all_values_in_order(count: int) -> None:
    trend = Trend()
    for number in range(count):
        trend.add(float(number), float(number))
        if number == count // 2:
            trend = Trend.from_list(json.loads(json.dumps(trend.to_list())))
    series = trend.series(float(count))
    values = [point.value for point in series]
    assert len(series) <= MOST_POINTS
    assert values == sorted(values)
    assert [point.time for point in series] == sorted(point.time for point in series)
    assert values[-1] >= count - 1 - trend.size
    whole = trend.size * sum(point[1] for point in trend.points) + trend.total
    assert whole == pytest.approx(sum(range(count)))


def test_no_spike_vanishes() -> None:
    trend = Trend()
    for number in range(100_003):
        trend.add(float(number), {33_333: 1000.0, 77_777: -5.0, 100_002: 500.0}.get(number, 1.0))
        if number == 50_000:
            trend = Trend.from_list(json.loads(json.dumps(trend.to_list())))
    series = trend.series(1e6)
    assert sorted(point.max for point in series if point.max is not None) == [1.0, 500.0, 1000.0]
    assert [point.min for point in series if point.min is not None and point.min < 1] == [-5.0]
    assert all(point.min is None for point in series if point.value == 1.0)


def test_values_that_are_not_finite_do_not_hide_the_others() -> None:
    trend = Trend()
    for number in range(10 * MOST_POINTS):
        trend.add(number, math.nan if number % 2 else 3.0)
    assert {point[1] for point in trend.points} == {3.0}
    only = Trend()
    only.add(1.0, math.inf)
    assert math.isnan(only.series(2.0)[0][1])
