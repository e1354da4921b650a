"""The runtime's reading of what ranks log: which ranks a step has, and files that a script has spoiled."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.contract import RankSlot
from cloudtrain.observe import EventLog, read_events
from cloudtrain.observe.metric_log import log, metrics_path
from cloudtrain.observe.metric_series import Point, metric_series
from cloudtrain.runtime import logged_metrics
from cloudtrain.runtime.logged_metrics import LoggedMetrics
from cloudtrain.runtime.run_folder import heartbeat_path
from tests.metric_logs import log_to

Call = tuple[Any, Any, dict[Any, float]]


def hexadecimal(numbers: Iterable[float]) -> str:
    return array("d", numbers).tobytes().hex()


def line_of(rank: Any, *calls: Call) -> str:
    """A line with these calls: the time, the step, and the values of each."""
    moments, steps, values = zip(*calls, strict=True)
    numbers = [number for each in values for number in each.values()]
    lists = [[*each] for each in values]
    places = [*range(len(calls))]
    return json.dumps(
        [rank, 0.0, hexadecimal(moments), [*steps], lists, places, hexadecimal(numbers)],
        separators=(",", ":"),
    )


class Ranks:
    """The files of two ranks, and their reader."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events = folder / "events.jsonl"
        slots = tuple(RankSlot.on_host(0, 1, 2))
        self.reader = LoggedMetrics(str(folder), slots, EventLog(self.events, "algo-1"))

    def path(self, rank: int) -> Path:
        return Path(metrics_path(heartbeat_path(str(self.folder), rank)))

    def write(self, rank: int, *lines: str) -> None:
        with open(self.path(rank), "a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def log(self, rank: int, step: int, value: float, name: str = "loss", at: float = 1000.0) -> None:
        self.write(rank, line_of(rank, (at, step, {name: value})))

    def series(self) -> dict[str, list[Point]]:
        self.reader.close()
        return metric_series(read_events(self.events))


@pytest.fixture
def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ranks:
    monkeypatch.setattr(logged_metrics, "INTERVAL", 0.02)
    return Ranks(tmp_path)


def wait_until(found: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not found():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_step_of_two_ranks_has_mean_bounds_and_the_slowest(ranks: Ranks) -> None:
    ranks.log(0, 1, 1.0)
    ranks.log(1, 1, 3.0, at=1000.25)
    assert ranks.series() == {"loss": [Point(1000.25, 2.0, 1, 1.0, 3.0, 2, 1, 0.25)]}


def test_a_metric_of_one_rank_has_no_bounds(ranks: Ranks) -> None:
    ranks.log(0, 10, 0.9, name="val/accuracy")
    assert ranks.series() == {"val/accuracy": [Point(1000.0, 0.9, 10, slowest=0)]}


def test_a_rank_that_is_far_behind_is_added_to_the_recorded_step(ranks: Ranks) -> None:
    ranks.log(0, 1, 1.0)
    ranks.log(0, 2, 1.0)
    wait_until(lambda: len(read_events(ranks.events)) == 2)
    ranks.log(1, 1, 3.0)
    ranks.log(1, 2, 3.0)
    assert [point[1:6] for point in ranks.series()["loss"]] == [(2.0, 1, 1.0, 3.0, 2), (2.0, 2, 1.0, 3.0, 2)]


def test_steps_after_a_restore_in_the_same_process_replace_earlier_ones(ranks: Ranks) -> None:
    for step in (1, 2, 3):
        ranks.log(0, step, 1.0)
        ranks.log(1, step, 1.0)
    wait_until(lambda: len(read_events(ranks.events)) == 3)
    for rank in (1, 0):
        ranks.log(rank, 2, 5.0)
    assert [(point.step, point.value, point.ranks) for point in ranks.series()["loss"]] == [
        (1, 1.0, 2),
        (2, 5.0, 2),
    ]


GOOD = line_of(0, (1000.0, 1, {"loss": 0.5}))


@pytest.mark.parametrize(
    "line",
    [
        *("", "not JSON", "[]", "null", '{"a": 1}', "[" * 50_000, "x" * 200_000, "[1000, 1, 0, [1]]"),
        '[0, [[1000, 1, {"loss": 1}]]]',
        *(
            GOOD.replace(part, bad)
            for part in ("0000000000408f40", "000000000000e03f")
            for bad in ("00", "zz")
        ),
        *(GOOD.replace('["loss"]', bad) for bad in ('"loss"', '["loss","b"]', '[["loss"]]', '[""]', "[]")),
        *(
            GOOD.replace("[1]", bad)
            for bad in ("[1e400]", '["1"]', "[true]", "[]", "[1,2]", "[" + "9" * 400 + "]")
        ),
        *(GOOD.replace("],[0],", bad) for bad in ("],[1],", "],[],", "],[0,0],", '],["0"],', "],0,")),
        *(
            GOOD.replace("[0,0.0,", bad)
            for bad in ('["0",0.0,', "[0,", '[0,"now",', "[0,-1e6,", f"[0,{'9' * 400},")
        ),
        GOOD.replace('"]', '",1]'),
        GOOD.replace('[["loss"]],[0]', '{},["loss"]'),
    ],
)
def test_other_lines_are_ignored(ranks: Ranks, line: str) -> None:
    assert line != GOOD
    ranks.write(0, line)
    ranks.log(0, 5, 0.5)
    assert [(point.step, point.value) for point in ranks.series()["loss"]] == [(5, 0.5)]


def test_calls_with_many_values_arrive_exactly(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {f"m{number}": number / 7 for number in range(50)} | {"inf": math.inf}
    found = log_to(ranks.path(0), pytest.fail, monkeypatch)
    log(values, step=3)
    found.close()
    assert {name: points[0][:3] for name, points in ranks.series().items()} == {
        name: (pytest.approx(time.time(), abs=60), value, 3) for name, value in values.items()
    }


def test_calls_of_different_names_arrive_in_one_line(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    found = log_to(ranks.path(0), pytest.fail, monkeypatch)
    for step in (1, 2, 3):
        log({"loss": step / 7}, step=step)
        log({"lr": 0.1 * step, "n": step}, step=step)
    found.close()
    assert ranks.path(0).read_text().count("\n") == 1
    assert {name: [point[1:3] for point in points] for name, points in ranks.series().items()} == {
        "loss": [(step / 7, step) for step in (1, 2, 3)],
        "lr": [(0.1 * step, step) for step in (1, 2, 3)],
        "n": [(step, step) for step in (1, 2, 3)],
    }


def test_a_step_that_no_training_reaches_does_not_spoil_the_other_calls(ranks: Ranks) -> None:
    ranks.write(0, line_of(0, *((1000.0, step, {"loss": 0.5}) for step in (1, 2**60, 2))))
    assert [point.step for point in ranks.series()["loss"]] == [1, 2]


def test_calls_of_many_long_names_arrive(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their line is longer than any event, and longer than one read of the file."""
    monkeypatch.setattr(logged_metrics, "CHUNK", 1 << 12)
    names = [f"{number:03}{'n' * 240}" for number in range(400)]
    ranks.write(0, line_of(0, *((1000.0, step, {name: 0.5}) for step, name in enumerate(names))))
    assert sorted(ranks.series()) == names


def test_values_that_are_not_finite_are_kept(ranks: Ranks) -> None:
    ranks.write(0, line_of(0, (1000, 1, {"a": math.nan, "b": math.inf})))
    found = ranks.series()
    assert str(found["a"][0].value) == "nan"
    assert found["b"][0].value == float("inf")


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_a_file_that_is_replaced_is_not_read(ranks: Ranks, kind: str) -> None:
    path = ranks.path(0)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        (ranks.folder / "other").write_text(line_of(0, (1000, 1, {"stolen": 1})) + "\n")
        path.symlink_to(ranks.folder / "other")
    else:
        path.mkdir()
    ranks.log(1, 1, 2.0)
    assert {name: len(points) for name, points in ranks.series().items()} == {"loss": 1}


def test_the_number_of_metrics_is_limited(ranks: Ranks) -> None:
    for number in range(3):
        names = {f"{number}-{index}": 1.0 for index in range(500)}
        ranks.write(0, line_of(0, (1000, number, names)))
    assert len(ranks.series()) == logged_metrics.MOST_NAMES


def test_a_script_that_logs_faster_than_it_is_read_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logged_metrics, "INTERVAL", 1000.0)
    monkeypatch.setattr(logged_metrics, "CHUNK", 1 << 12)
    monkeypatch.setattr(logged_metrics, "MOST_LINES", 10)
    ranks = Ranks(tmp_path)
    for rank in (0, 1):
        ranks.write(rank, *(line_of(rank, (1000.0, step, {"loss": rank})) for step in range(1000)))
    assert [point[1:3] for point in ranks.series()["loss"]] == [(0.5, step) for step in range(1000)]


def test_values_that_the_end_of_the_job_does_not_wait_for_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logged_metrics, "INTERVAL", 1000.0)
    monkeypatch.setattr(logged_metrics, "MOST_CLOSE_SECONDS", 0.0)
    events, can_end = tmp_path / "events.jsonl", threading.Event()
    slots = tuple(RankSlot.on_host(0, 1, 1))
    reader = LoggedMetrics(str(tmp_path), slots, EventLog(events, "algo-1"), lambda: can_end.wait() and ())
    reader.close()
    can_end.set()
    [event] = read_events(events)
    assert "metrics of cloudtrain.log() are lost" in event["message"]
