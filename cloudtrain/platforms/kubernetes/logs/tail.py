"""The progress of a running job, the course of its metrics, and the last lines of a host."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any

from cloudtrain.errors import PlatformError
from cloudtrain.observe import Summary
from cloudtrain.platforms.base import Series
from cloudtrain.platforms.kubernetes.api.errors import KubeNotFound
from cloudtrain.platforms.kubernetes.life.objects import Snapshot
from cloudtrain.platforms.kubernetes.logs.lines import LONGEST_LINE, Line, LineParser, Position
from cloudtrain.platforms.kubernetes.logs.pod_log import Printed, Source
from cloudtrain.platforms.kubernetes.logs.reader import EventReader, may_be_event, sources

if TYPE_CHECKING:
    from cloudtrain.platforms.kubernetes.api.client import Api
    from cloudtrain.platforms.kubernetes.life.job_watch import JobWatch

TAIL_LINES = 2000
HEAD_BYTES = 1 << 18
"""Of the beginning of a log, which has the first phases."""
LONGEST_TAIL = 8 << 20
"""Bytes that are read of one log: its lines may be long."""
FRESH_SECONDS = 3.0
"""A summary younger than this is not renewed."""
FRESH_TRENDS = 2.0
"""The same for trends."""
AFTER_FAILURES = 30.0
"""The same while the log cannot be read, after some failures."""
PATIENCE = 5.0
"""Seconds that a description waits for a kubelet: its node may be lost."""

LAST_LINES = 500
MOST_HOSTS = 50
"""Hosts whose last lines are read if it is not known which one failed."""
READERS = 10


class _Leaders:
    """The logs of a job's leaders: what was read once is not read again. Threads may share it."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._reader = EventReader()
        self._summary: Summary | None = None
        self._positions: dict[str, Position] = {}
        """By pod."""
        self._is_complete: set[str] = set()
        """The pods that had ended when they were read."""
        self._due_at = float("-inf")

    def _read_new(self, objects: Snapshot, *, tail: int | None = None, most: int = 0) -> None:
        """Read what is new of the leaders' logs, the oldest first. Raises PlatformError.

        Args:
            tail: read at most this many lines from the end, and of a log that is longer, its beginning; None: all.
            most: read only so many leaders, the newest.
        """
        found = sorted((one for one in sources(objects) if one.is_leader), key=lambda one: one.began)
        for state in found[-most:]:
            source = state.source
            if source.uid in self._is_complete:
                continue
            position = self._positions.setdefault(source.uid, Position())
            position.reconnect()
            with contextlib.suppress(KubeNotFound):  # the pod was deleted meanwhile
                if tail is None:
                    for lines in _read(self._api, source, since=position.since, is_whole=state.has_ended):
                        self._add(source, position.new(lines))
                else:
                    self._read_ends(source, position, tail)
                if state.has_ended:
                    self._is_complete.add(source.uid)

    def _read_ends(self, source: Source, position: Position, tail: int) -> None:
        limits: dict[str, Any] = {"idle": PATIENCE, "attempts": 2}
        is_first = position.since is None
        end = [*chain(*_read(self._api, source, LONGEST_TAIL, since=position.since, tail=tail, **limits))]
        head: list[Line] = []
        if is_first and len(end) >= tail:
            head = [*chain(*_read(self._api, source, HEAD_BYTES, **limits))]
        before = [line for line in head if (line.time or 0) < (end[0].time or 0)]
        # only now: after a failure of a read, the next call reads both again
        self._add(source, [*before, *position.new(end)])

    def _add(self, source: Source, lines: Iterable[Line]) -> None:
        found = (Printed(line.time or 0, source, line.text) for line in lines if may_be_event(line))
        for event in self._reader.events(found):
            self._summary = self._summary or Summary()
            self._summary.add(event)


class RunningSummary(_Leaders):
    """The summary of a job's events so far, from its leader's log.

    The first call reads the end of the log, and its beginning; later ones what is new. Of a log that grows by more than
    2,000 lines between two calls, events in between are left out.
    """

    _failures = 0

    def __call__(self, objects: Snapshot) -> Summary | None:
        """None if no leader has started, or its log cannot be read: describing a job does not fail for that."""
        with self._lock:
            if time.monotonic() >= self._due_at:
                try:
                    self._read_new(objects, tail=TAIL_LINES, most=2)
                    self._failures = 0
                except PlatformError:
                    self._failures += 1
                pause = min(FRESH_SECONDS * 2.0 ** min(self._failures, 10), AFTER_FAILURES)
                self._due_at = time.monotonic() + pause
            return self._summary


class GrowingTrends(_Leaders):
    """The course of each metric of a job, from all of its leaders' logs."""

    def __init__(self, api: Api, watch: JobWatch) -> None:
        super().__init__(api)
        self._watch = watch

    def __call__(self) -> Series:
        """Raises PlatformError."""
        with self._lock:
            if time.monotonic() >= self._due_at:
                self._read_new(self._watch.snapshot())
                self._due_at = time.monotonic() + FRESH_TRENDS
            summary = self._summary or Summary()
            return {name: trend.series(summary.last) for name, trend in summary.trends.items()}


class LastLinesOf:
    """The last lines of a host, or of all hosts: see `common.failure.LastLines`."""

    def __init__(self, api: Api, watch: JobWatch) -> None:
        self._api = api
        self._watch = watch

    def __call__(self, host: str | None) -> Mapping[str, Sequence[str]]:
        """By host, without the lines that are events. Hosts whose logs are gone are left out. Raises PlatformError."""
        newest = {state.source.host: state.source for state in sources(self._watch.known())}
        chosen = [newest[host]] if host in newest else list(newest.values())[:MOST_HOSTS]
        with ThreadPoolExecutor(READERS) as pool:
            ends = pool.map(self._end, chosen)
            return {source.host: lines for source, lines in zip(chosen, ends, strict=True) if lines}

    def _end(self, source: Source) -> list[str]:
        try:
            lines = [
                *chain(*_read(self._api, source, LONGEST_TAIL, tail=LAST_LINES, idle=PATIENCE, attempts=2))
            ]
        except PlatformError:
            return []
        shown = (line.text for line in lines if line.time is not None and not may_be_event(line))
        return [text.decode("utf-8", "backslashreplace").rstrip("\r") for text in shown]


def _read(
    api: Api, source: Source, size: float = float("inf"), *, is_whole: bool = True, **how: Any
) -> Iterator[list[Line]]:
    """Lines of a log as they arrive, at most about ``size`` bytes. Raises PlatformError.

    Args:
        is_whole: whether the last line counts although it has no end: else it arrives again.
        how: see `Api.pod_log`.
    """
    parser = LineParser()
    with api.pod_log(source.pod, source.container, **how) as stream:
        for lines in stream.batches(LONGEST_LINE):
            yield parser.lines(lines)
            size -= sum(map(len, lines))
            if size <= 0:
                return
        if is_whole and stream.rest:
            yield parser.lines([stream.rest])
