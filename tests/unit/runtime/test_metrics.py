"""Metrics in the output of ranks: what counts as one, and what each costs."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import pytest
from audit import opened_files

from cloudtrain.observe import EventLog, read_events
from cloudtrain.runtime.metrics import MetricFinder
from cloudtrain.runtime.output import OutputMerger, Stream

DEFINITIONS = (("loss", "loss=([^ ]+)"), ("é", "acc=([0-9.]+)"))


def find(tmp_path: Path, *lines: str, rank: int | None = 1) -> list[dict[str, object]]:
    finder = MetricFinder(DEFINITIONS, EventLog(tmp_path / "events", "algo-1", clock=lambda: 1.0004))
    finder(Stream(rank, -1), lines)
    finder.close()
    return read_events(tmp_path / "events")


def test_metrics_are_numbers_after_their_names(tmp_path: Path) -> None:
    events = find(tmp_path, "loss=0.5 acc=0.9", "loss=abc", "nothing", "loss=1e-3")
    assert [(event["name"], event["value"]) for event in events] == [
        ("loss", 0.5),
        ("é", 0.9),
        ("loss", 0.001),
    ]
    assert events[0] == {
        "time": 1.0,
        "source": "algo-1",
        "event": "metric",
        "name": "loss",
        "value": 0.5,
        "rank": 1,
    }


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e400", "0.1", "12345678901234567890"])
def test_a_metric_may_have_any_number(tmp_path: Path, text: str) -> None:
    [event] = find(tmp_path, f"loss={text}", rank=None)
    value = event["value"]
    assert isinstance(value, float)
    assert value == float(text) or math.isnan(value)
    assert event["rank"] is None


def test_an_expression_without_a_group_finds_nothing(tmp_path: Path) -> None:
    finder = MetricFinder([("loss", "loss")], EventLog(tmp_path / "events", "algo-1"))
    finder(Stream(0, -1), ["loss=1"])
    finder.close()
    assert read_events(tmp_path / "events") == []


def test_metrics_cost_no_open_file_each(tmp_path: Path) -> None:
    """100,000 metrics once meant 100,000 opened files: the ranks waited for them."""
    log = EventLog(tmp_path / "events", "algo-1")
    metrics = MetricFinder(DEFINITIONS, log)
    with open(tmp_path / "merged", "wb") as target, opened_files() as opened:
        output = OutputMerger(target.fileno(), tmp_path, metrics)
        output.add_rank(str(tmp_path / "pipe"), 0)
        output.start()
        script = f"seq -f 'loss=%g' 100000 > {tmp_path}/pipe"
        subprocess.run(["sh", "-c", script], check=True, timeout=240)
        output.close()
        metrics.close()
    assert len([path for path in opened if path == str(log.path)]) == 1
    values = [event["value"] for event in read_events(log.path)]
    assert values == [float(f"{number:g}") for number in range(1, 100_001)]
