"""The order of CUDA streams around collectives, on a CUDA that only keeps who waits for whom."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from cloudtrain.distributed.negotiation.client import NegotiationClient
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._gradients import buckets
from cloudtrain.distributed.torch._gradients.buckets import WritingStreams
from cloudtrain.distributed.world import World


class Stream:
    def __init__(self, name: str) -> None:
        self.name = name
        self.waits_for: list[Any] = []

    def wait_stream(self, other: Stream) -> None:
        self.waits_for.append(other)


class Event:
    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.done = False

    def record(self, stream: Stream) -> None:
        self.stream = stream

    def wait(self, stream: Stream) -> None:
        stream.waits_for.append(self.stream)

    def query(self) -> bool:
        return self.done


class Buffer:
    is_cuda = True
    device = torch.device("cuda", 0)


class Cuda:
    """Every thread has its own current stream, as in CUDA."""

    Event = Event

    def __init__(self) -> None:
        self.default = Stream("default")
        self._current = threading.local()

    def current_stream(self, device: Any = None) -> Stream:
        return getattr(self._current, "stream", self.default)

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self._current.stream = self.current_stream(), stream
        yield
        self._current.stream = before

    @contextlib.contextmanager
    def device(self, device: Any) -> Iterator[None]:
        yield


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    cuda = Cuda()
    for name in ("Event", "current_stream", "stream", "device"):
        monkeypatch.setattr(torch.cuda, name, getattr(cuda, name))
    return cuda


def test_a_bucket_is_sent_after_the_streams_that_filled_it(cuda: Cuda) -> None:
    streams, buffer = WritingStreams(), Buffer()
    one, two = Stream("one"), Stream("two")
    for stream in (one, two, one):
        with cuda.stream(stream):
            streams.add(buffer)  # type: ignore[arg-type]
    with cuda.stream(two):
        assert streams.join(buffer)  # type: ignore[arg-type]
    assert (one.waits_for, two.waits_for) == ([], [one])
    assert not streams.join(buffer)  # type: ignore[arg-type]
    assert cuda.default.waits_for == [], "the next step has other streams"


def test_tensors_of_the_cpu_have_no_streams(cuda: Cuda) -> None:
    streams = buckets.WritingStreams()
    streams.add(torch.ones(1))
    streams.join(torch.ones(1))
    assert cuda.default.waits_for == []


def test_work_in_a_thread_keeps_the_order_of_the_callers_stream(cuda: Cuda) -> None:
    client = NegotiationClient(lambda response: None, 1.0)
    context = _state.Context(World(0, 2, 0, 2), False, client, 1.0, torch.device("cuda", 0))
    ran_on: list[Stream] = []
    side = Stream("side")
    with cuda.stream(side):
        work = context.run_in_thread(lambda: ran_on.append(cuda.current_stream()))
    consumer = Stream("consumer")
    with cuda.stream(consumer):
        work.wait()
    assert ran_on == [side]
    assert consumer.waits_for == [side]
    assert not work.is_completed(), "the thread is done, and its kernels still run"
    work._ended.done = True
    assert work.is_completed()
    context.close_threads()
