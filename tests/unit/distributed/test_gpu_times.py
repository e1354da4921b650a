"""The GPU's times of collectives, on a CUDA whose events happen when the test says."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from cloudtrain.distributed.torch._gpu_times import ANCHOR_NS, GpuTimes
from cloudtrain.observe.timeline import recorder
from cloudtrain.observe.timeline.recorder import Timeline

DEVICE = torch.device("cuda", 0)
STARTED = 7_000_000_000
"""The GPU's clock at the beginning of the test, in ns. The host's is that of `now`."""


class Gpu:
    """A GPU whose streams do what was launched once `run` says how long it takes, in ns."""

    def __init__(self) -> None:
        self.now = STARTED
        self.streams: list[Stream] = []
        self.current = Stream(self)
        self.waits = 0
        """How often the host waited for an event."""

    @contextlib.contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before


class Stream:
    def __init__(self, gpu: Gpu) -> None:
        self.blocked_by: Work | None = None
        gpu.streams.append(self)


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.at, self.work = gpu, 0, None

    def record(self, stream: Stream) -> None:
        self.work = stream.blocked_by  # type: ignore[assignment]
        if self.work is None:
            self.at = self.gpu.now

    def query(self) -> bool:
        return self.work is None or bool(self.work.ended_at)

    def synchronize(self) -> None:
        assert self.query(), "the host would wait for a collective"
        self.gpu.waits += 1

    def elapsed_time(self, other: Event) -> float:
        at = other.work.ended_at if other.work else other.at
        return (at - self.at) / 1e6


class Work:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.ended_at = gpu, 0

    def wait(self) -> None:
        self.gpu.current.blocked_by = self


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu()
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: Event(gpu))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream(gpu))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: gpu.current)
    monkeypatch.setattr(torch.cuda, "stream", gpu.on)
    return gpu


@pytest.fixture
def timeline(tmp_path: Path) -> Timeline:
    return Timeline(tmp_path / "timeline.json", 0, 2)


def test_spans_have_the_times_of_the_gpu(gpu: Gpu, timeline: Timeline, tmp_path: Path) -> None:
    times = GpuTimes(timeline, DEVICE)
    _, host = times._anchor
    first, second = (timeline.operation("allreduce", name, {}) for name in ("first", "second"))
    works = [Work(gpu), Work(gpu)]
    gpu.now = STARTED + 1_000_000  # the gradients are ready 1 ms after the anchor
    times.follow(first, works[0], "group", None)
    gpu.now = STARTED + 2_000_000
    times.follow(second, works[1], "group", None)
    assert (first.ended, second.ended) == (None, None)
    works[0].ended_at = STARTED + 5_000_000
    times.poll()
    works[1].ended_at = STARTED + 6_000_000
    timeline.close()
    assert gpu.waits == 1, "only for the anchor"
    assert [t - host for t in (first.began or 0, first.ended or 0)] == [1_000_000, 5_000_000]
    assert [t - host for t in (second.began or 0, second.ended or 0)] == [5_000_000, 6_000_000], (
        "the second one begins after the first, which has the same group"
    )
    events: list[dict[str, Any]] = json.loads((tmp_path / "timeline.json").read_text())
    assert sum(event.get("name") == "ALLREDUCE" for event in events) == 2


def test_the_current_stream_does_not_wait(gpu: Gpu, timeline: Timeline) -> None:
    times = GpuTimes(timeline, DEVICE)
    times.follow(timeline.operation("allreduce", "a", {}), Work(gpu), "group", None)
    assert gpu.current.blocked_by is None
    timeline.close()


def test_tensors_live_until_the_end(gpu: Gpu, timeline: Timeline) -> None:
    times, work, tensors = GpuTimes(timeline, DEVICE), Work(gpu), [torch.ones(1)]
    times.follow(timeline.operation("allreduce", "a", {}), work, "group", tensors)
    assert any(followed.keep is tensors for followed in times._followed)
    work.ended_at = STARTED + 1
    times.poll()
    assert not times._followed
    timeline.close()


def test_the_clocks_are_compared_again(gpu: Gpu, timeline: Timeline, monkeypatch: pytest.MonkeyPatch) -> None:
    times = GpuTimes(timeline, DEVICE)
    later = recorder.now() + ANCHOR_NS + 1
    monkeypatch.setattr("cloudtrain.distributed.torch._gpu_times.now", lambda: later)
    gpu.now += ANCHOR_NS + 500  # the GPU's clock is slower
    times.poll()
    event = Event(gpu)
    event.record(gpu.current)
    assert times._time_of(event) == later
    timeline.close()
