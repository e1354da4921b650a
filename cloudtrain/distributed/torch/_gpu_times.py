"""Start and end times of collectives on the GPU, for the timeline: from CUDA events, without waiting for the GPU."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, NamedTuple

import torch

from cloudtrain.observe.timeline import recorder
from cloudtrain.observe.timeline.recorder import Operation, Timeline, now

ANCHOR_NS = 10_000_000_000
"""How long one anchor of the GPU's clock stays in use. Event times are float32 milliseconds: exact to 1 us for 16 s."""
SETTLE_SECONDS = 2.0
"""How long the end of a recording waits for the GPU."""


class _Followed(NamedTuple):
    operation: Operation
    group: Any
    begin: Any
    end: Any
    keep: Any


class GpuTimes:
    """Follows the collectives of one GPU while ``timeline`` records.

    An operation begins when its data are ready and the group has ended the operation before it. Its end is the event
    of a stream that only waits for the group.
    """

    def __init__(self, timeline: Timeline, device: torch.device) -> None:
        self.timeline = timeline
        self._device = device
        self._idle = self._new_stream()
        self._streams: dict[Any, Any] = {}
        self._ended: dict[Any, int] = {}
        """When the last operation of each group ended."""
        self._followed: deque[_Followed] = deque()
        self._lock = threading.Lock()
        self._anchor = self._make_anchor()
        timeline.settle = self.settle

    def follow(self, operation: Operation, work: Any, group: Any, keep: Any) -> None:
        """Record the times of ``operation``, which the current stream has launched as ``work`` of ``group``.

        Args:
            keep: objects that must not be freed before the end, such as the tensors, which torch frees after the first
                wait.
        """
        begin, end = self._new_event(), self._new_event()
        begin.record(torch.cuda.current_stream(self._device))
        with self._lock:
            if group not in self._streams:
                self._streams[group] = self._new_stream()
            stream = self._streams[group]
            with torch.cuda.stream(stream):
                work.wait()
            end.record(stream)
            self._followed.append(_Followed(operation, group, begin, end, keep))
        self.poll()

    def poll(self) -> None:
        """Record the operations that have ended."""
        with self._lock:
            while self._followed and self._followed[0].end.query():
                followed = self._followed.popleft()
                ended = self._time_of(followed.end)
                began = max(self._time_of(followed.begin), self._ended.get(followed.group, 0))
                self._ended[followed.group] = ended
                followed.operation.began = min(began, ended)
                followed.operation.end(ended)
            if now() - self._anchor[1] > ANCHOR_NS:
                self._anchor = self._make_anchor()

    def settle(self) -> None:
        """Record the operations that end soon. Called at the end of the recording."""
        deadline = time.monotonic() + SETTLE_SECONDS
        self.poll()
        while self._followed and time.monotonic() < deadline:
            time.sleep(0.001)
            self.poll()

    def _make_anchor(self) -> tuple[Any, int]:
        """An event and the time of the host's clock at which it happened, on a stream that has nothing to wait for."""
        event = self._new_event()
        before = now()
        event.record(self._idle)
        event.synchronize()
        return event, (before + now()) // 2

    def _time_of(self, event: Any) -> int:
        anchor, at = self._anchor
        return at + int(anchor.elapsed_time(event) * 1e6)

    def _new_event(self) -> Any:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def _new_stream(self) -> Any:
        return torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]


_times: GpuTimes | None = None


def follow(operation: Operation, work: Any, group: Any, device: torch.device, keep: Any) -> bool:
    """`GpuTimes.follow` for the current recording; False while a CUDA graph is captured, or nothing is recorded."""
    global _times
    timeline = recorder.active
    if timeline is None or torch.cuda.is_current_stream_capturing():
        return False
    if _times is None or _times.timeline is not timeline:
        _times = GpuTimes(timeline, device)
    _times.follow(operation, work, group, keep)
    return True


def poll() -> None:
    """`GpuTimes.poll` for the current recording."""
    times = _times
    if (
        times is not None
        and times.timeline is recorder.active
        and not torch.cuda.is_current_stream_capturing()
    ):
        times.poll()
