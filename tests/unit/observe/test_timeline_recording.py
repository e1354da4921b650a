"""Recorded timelines: complete, truncated, closed early."""

from __future__ import annotations

import json
import os
import resource
import threading
from pathlib import Path

import pytest

from cloudtrain.errors import StorageError
from cloudtrain.observe.timeline import Timeline, read_trace, recorder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The timeline of one rank, with every kind of record."""
    path = tmp_path / "deep" / "timeline.json"
    timeline = Timeline(path, 1, 2, ask=lambda: (0, 7, 2), mark_cycles=True, cycle_ns=0)
    timeline.step_ended()
    bucket = timeline.operation("allreduce", 'gradients "a" ... b', {"bytes": 8})
    bucket.copies.append((bucket.asked - 20, bucket.asked - 10))
    bucket.carrier, bucket.began = "SHARED_MEMORY", recorder.now()
    bucket.end()
    bucket.end()
    named = timeline.operation("broadcast", "ü", {"shape": [2]}, negotiated=True)
    named.agreed = recorder.now()
    named.end()
    unnamed = [timeline.operation("allgather", "", {}, negotiated=True) for _ in range(2)]
    for operation in unnamed:
        operation.fail()
    timeline.waited("broadcast of ü", named.asked)
    timeline.step_ended()
    timeline.operation("alltoall", "late", {}, negotiated=True)
    timeline.close()
    return path


def test_what_was_recorded(path: Path) -> None:
    events = json.loads(path.read_text())
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = [(lanes[event["tid"]], event["name"]) for event in events if event["ph"] == "X"]
    assert spans == [
        ('allreduce.gradients "a" ... b', "MEMCPY_IN_FUSION_BUFFER"),
        ('allreduce.gradients "a" ... b', "ALLREDUCE"),
        ('allreduce.gradients "a" ... b', "QUEUE"),
        ('allreduce.gradients "a" ... b', "SHARED_MEMORY_ALLREDUCE"),
        ("broadcast.ü", "NEGOTIATE_BROADCAST"),
        ("broadcast.ü", "BROADCAST"),
        ("allgather.noname", "NEGOTIATE_ALLGATHER"),
        ("allgather.noname (2)", "NEGOTIATE_ALLGATHER"),
        (threading.current_thread().name, "WAIT"),
        (threading.current_thread().name, "STEP"),
        ("alltoall.late", "NEGOTIATE_ALLTOALL"),
    ]
    facts = [event["args"] for event in events if event["ph"] == "X" and "args" in event]
    assert facts == [
        {"bytes": 8},
        {"shape": [2]},
        {"failed": True},
        {"failed": True},
        {"for": "broadcast of ü"},
        {"step": 1},
        {"unfinished": True},
    ]
    assert sum(event["name"] == "CYCLE_START" for event in events) == 5


def test_a_file_is_read_wherever_it_was_cut(path: Path) -> None:
    whole, data = read_trace(path), path.read_bytes()
    assert whole.rank == 1
    assert [(offset.offset_ns, offset.round_trip_ns) for offset in whole.offsets] == [(6, 2)] * 2
    first_line = data.index(b"\n", 2)
    counts = set()
    for end in (*range(first_line, len(data), 7), len(data)):  # a line is longer
        path.write_bytes(data[:end])
        cut = read_trace(path)
        counts.add(len(cut.events))
        assert cut.events == whole.events[: len(cut.events)]
    assert counts == set(range(1, len(whole.events) + 1))
    path.write_bytes(data[: first_line // 2])
    with pytest.raises(StorageError, match="not a timeline of cloudtrain"):
        read_trace(path)


def test_events_are_on_disk_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    timeline = Timeline(path, 0, 1)
    timeline.operation("allreduce", "early", {}).end()
    waited = threading.Event()
    while "allreduce.early" not in path.read_text():
        assert not waited.wait(0.01)
    timeline.close()


def test_a_full_disk_only_ends_the_recording(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    timeline = Timeline(tmp_path / "t.json", 0, 1)
    recorder.start(timeline)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        for number in range(100):
            timeline.operation("allreduce", f"tensor {number}", {}).end()
        timeline.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert recorder.active is None
    assert f"cannot write {tmp_path / 't.json'}: File too large" in capfd.readouterr().err
    assert len(read_trace(tmp_path / "t.json").events) > 5


def test_a_forked_child_records_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    recorder.start(Timeline(path, 0, 1))
    child = os.fork()
    if child == 0:
        os._exit(recorder.active is not None)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    recorder.stop()
    assert recorder.active is None
    assert json.loads(path.read_text())


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Is a directory"):
        Timeline(tmp_path, 0, 1)
