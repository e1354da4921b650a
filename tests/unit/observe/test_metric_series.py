"""The series of a metric, from the events of several hosts and attempts."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cloudtrain.observe import summarize
from cloudtrain.observe.metric_series import Point, metric_series


def metric(step: int | None, value: float, host: str = "algo-1", **fields: Any) -> dict[str, Any]:
    time = 1000.0 + (step or 0)
    return {
        "event": "metric",
        "name": "loss",
        "time": time,
        "source": host,
        "rank": None,
        "step": step,
        "value": value,
        **fields,
    }


def steps(*events: dict[str, Any]) -> list[tuple[int | None, float]]:
    return [(point.step, point.value) for point in metric_series(events).get("loss", ())]


def test_printed_values_have_no_step() -> None:
    found = metric_series([metric(None, 2.0), metric(None, 1.0)])
    assert found == {"loss": [Point(1000.0, 2.0), Point(1000.0, 1.0)]}


def test_logged_values_replace_printed_ones() -> None:
    assert steps(metric(None, 9.0), metric(1, 2.0), metric(None, 9.0), metric(2, 1.0)) == [(1, 2.0), (2, 1.0)]


def test_hosts_are_combined_with_the_weights_of_their_ranks() -> None:
    first = metric(1, 1.0, "algo-1", ranks=3, min=0.5, max=1.5, slowest=2, lag=0.1)
    second = {**metric(1, 5.0, "algo-2", rank=3), "time": 1002.0}
    [point] = metric_series([first, second])["loss"]
    assert point == Point(1002.0, 2.0, 1, 0.5, 5.0, 4, 3, None)
    assert summarize([first, second]).metrics == {"loss": 2.0}


def test_a_slow_host_does_not_count_as_a_restart() -> None:
    found = steps(metric(1, 1.0), metric(2, 1.0), metric(3, 1.0), metric(1, 3.0, "algo-2"))
    assert found == [(1, 2.0), (2, 1.0), (3, 1.0)]


def test_steps_after_a_restore_replace_the_earlier_ones_of_all_hosts() -> None:
    events = [metric(step, 1.0, host) for step in range(5) for host in ("algo-1", "algo-2")]
    again = [metric(step, 3.0, host) for step in range(2, 4) for host in ("algo-2", "algo-1")]
    assert steps(*events, *again) == [(0, 1.0), (1, 1.0), (2, 3.0), (3, 3.0)]


def test_late_values_are_added_to_their_step() -> None:
    found = steps(metric(1, 1.0), metric(2, 1.0), metric(1, 3.0, rank=1, late=True))
    assert found == [(1, 2.0), (2, 1.0)]


@pytest.mark.parametrize("seed", range(20))
def test_the_order_in_which_hosts_report_does_not_matter(seed: int) -> None:
    """Each host reports its own steps in order, and jumps back once."""
    chance = random.Random(seed)
    waiting = {f"algo-{host}": list(range(30)) for host in range(1, 4)}
    events = []
    for last in (30, 60):
        while any(waiting.values()):
            host = chance.choice([host for host, left in waiting.items() if left])
            events.append(metric(waiting[host].pop(0), float(host[-1]), host))
        waiting = {host: list(range(20, last)) for host in waiting} if last == 30 else {}
        while any(waiting.values()):
            host = chance.choice([host for host, left in waiting.items() if left])
            events.append(metric(waiting[host].pop(0), float(host[-1]), host))
    assert steps(*events) == [(step, 2.0) for step in range(30)]


def test_an_attempt_on_other_hosts_replaces_the_repeated_steps() -> None:
    before = [metric(step, 1.0, "n1", ranks=8) for step in (1, 2, 3)]
    again = [metric(step, 5.0, host, ranks=8) for host in ("n3", "n4") for step in (2, 3)]
    events = [*before, {"event": "attempt", "attempt": 1}, *again]
    assert [(point.step, point.value, point.ranks) for point in metric_series(events)["loss"]] == [
        *((1, 1.0, 8), (2, 5.0, 16), (3, 5.0, 16))
    ]
    assert summarize(events).metrics == {"loss": 5.0}


def test_a_summary_combines_hosts_that_report_several_steps_at_a_time() -> None:
    events = [
        metric(step, value, host, ranks=8) for host, value in (("a", 1.0), ("b", 3.0)) for step in (1, 2, 3)
    ]
    found = summarize(events)
    assert found.metrics == {"loss": 2.0}
    assert len(found.trends["loss"].points) == 3


def test_a_forged_event_without_a_rank_is_a_point() -> None:
    forged = {"time": 1.0, "source": "a", "event": "metric", "name": "loss", "value": 1.0, "step": 1}
    assert metric_series([forged])["loss"] == [Point(1.0, 1.0, 1)]
