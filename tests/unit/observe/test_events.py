"""Events: many writers, and readers at any time."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cloudtrain.observe import EventLog, events, parse_event, read_events, summarize
from cloudtrain.observe.events import to_line


def test_many_writers_never_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"

    def write(source: str) -> None:
        log = EventLog(path, source, clock=lambda: 1.0)
        for number in range(200):
            log.emit("x", number=number, text="é" * 100)

    threads = [threading.Thread(target=write, args=(f"host-{index}",)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = read_events(path)
    assert len(events) == 800
    for index in range(4):
        assert [event["number"] for event in events if event["source"] == f"host-{index}"] == list(range(200))


def test_a_line_cut_short_by_a_crash_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "a"}\n{"event": "b"}\n{"even')
    assert [event["event"] for event in read_events(path)] == ["a", "b"]
    assert read_events(tmp_path / "nosuch") == []


def test_a_summary_has_the_slowest_host_the_last_metric_and_the_first_upload() -> None:
    records = [
        {"event": "phase", "phase": "train", "state": "began"},
        {"event": "phase", "phase": "train", "state": "ended", "seconds": 9.0},
        {"event": "attempt", "attempt": 1},
        {"event": "phase", "phase": "fetch", "state": "ended", "seconds": 1.0},
        {"event": "phase", "phase": "fetch", "state": "ended", "seconds": 3.0},
        {"event": "phase", "phase": "fetch", "state": "ended", "seconds": 2.0},
        {"event": "metric", "name": "loss", "value": 2.0},
        {"event": "metric", "name": "loss", "value": 1.0},
        {"event": "uploaded", "kind": "model", "uri": "s3://a"},
        {"event": "uploaded", "kind": "model", "uri": "s3://a/algo-2"},
        {"event": "phase", "phase": "upload", "state": "began"},
    ]
    summary = summarize([json.loads(json.dumps(record)) for record in records])
    assert summary.phases == {"fetch": 3.0}
    assert (summary.metrics, summary.uploaded, summary.phase) == (
        {"loss": 1.0},
        {"model": "s3://a"},
        "upload",
    )


def test_a_summary_has_no_output_that_a_later_attempt_discarded() -> None:
    records = [
        {"event": "uploaded", "kind": "model", "uri": "s3://a"},
        {"event": "uploaded", "kind": "output", "uri": "s3://b"},
        {"event": "attempt", "attempt": 1},
        {"event": "discarded", "kind": "output"},
        {"event": "uploaded", "kind": "model", "uri": "s3://a"},
    ]
    assert summarize(records).uploaded == {"model": "s3://a"}


def test_a_summary_has_the_last_different_warnings_of_the_last_attempt() -> None:
    warnings = [{"event": "warning", "message": str(number // 2)} for number in range(30)]
    records = [{"event": "warning", "message": "old"}, {"event": "attempt", "attempt": 1}, *warnings]
    assert summarize(records).warnings == [str(number) for number in range(5, 15)]


@pytest.mark.parametrize("name", ["loss", "val/loss", "é", 'a"b', "a b", ""])
@pytest.mark.parametrize("value", [0.5, -1e-07, 1e22, 3, 0.1234567890123456789])
@pytest.mark.parametrize("rank", [0, 1023, None])
def test_a_metric_is_read_as_json_has_it(name: str, value: float, rank: int | None) -> None:
    """Metrics in their usual form are read without a parser of JSON."""
    event = {"time": 1795354574.3, "source": "algo-1", "event": "metric"}
    line = json.dumps({**event, "name": name, "value": value, "rank": rank}, ensure_ascii=False)
    assert parse_event(line) == parse_event(line.encode()) == json.loads(line)


@pytest.mark.parametrize("end", ["", "}}", "} ", ", 1}", "x}", "1.2.3}"])
def test_a_line_that_is_nearly_a_metric_is_none(end: str) -> None:
    line = '{"time": 1.5, "source": "a", "event": "metric", "name": "loss", "value": 1, "rank": 0' + end
    with contextlib.suppress(ValueError):
        assert parse_event(line) == json.loads(line)


@pytest.mark.parametrize("step", [0, -7, 10**14])
@pytest.mark.parametrize("ranks", [{}, {"ranks": 8, "min": -1.5, "max": 1e-7, "slowest": 3, "lag": 0.25}])
@pytest.mark.parametrize("encode", [str, str.encode])
def test_a_logged_metric_is_read_as_json_has_it(
    step: int, ranks: dict[str, float], encode: Callable[[str], str | bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    event = {
        "time": 1.5,
        "source": "algo-1",
        "event": "metric",
        "name": "val/loss",
        "value": 0.5,
        "rank": None,
    }
    event.update(step=step, **ranks)
    line = encode(to_line(event).decode().rstrip())
    assert parse_event(line) == event
    monkeypatch.setattr(events, "parse_json", pytest.fail)  # no metric takes the slow way
    assert parse_event(line) == event


def test_events_never_replace_a_device() -> None:
    assert EventLog(Path("/dev/full"), "algo-1").open() is None
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to("/etc/hosts"), lambda path: path.mkdir()]
)
def test_events_replace_a_pipe_and_a_link_but_no_folder(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    path = tmp_path / "events.jsonl"
    make(path)
    EventLog(path, "algo-1").emit("x")
    assert path.is_dir() or [event["event"] for event in read_events(path)] == ["x"]


FULL_AND_FREE_AGAIN = """
import resource, sys
from pathlib import Path
from cloudtrain.observe import EventLog
from cloudtrain.runtime.metrics import MetricFinder
from cloudtrain.runtime.output import Stream

events = EventLog(Path(sys.argv[1]), "algo-1")
find = MetricFinder([("loss", "loss=(.*)")], events)
stream = Stream(0, 1)
events.emit("first")
find(stream, ["loss=1"])
size = Path(sys.argv[1]).stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, -1))
events.emit("lost")
try:
    find(stream, ["loss=2"])
except OSError:
    print("full")
resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
find(stream, ["loss=3"])
events.emit("last")
"""


def test_a_line_that_a_full_disk_has_cut_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    environ = {"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": ""}
    command = [sys.executable, "-c", FULL_AND_FREE_AGAIN, str(path)]
    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
    assert done.stdout == "full\n"
    assert [event.get("value", event["event"]) for event in read_events(path)] == ["first", 1.0, 3.0, "last"]
