"""The progress of a running job, the course of its metrics, and the last lines of a host."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from cloudtrain.errors import PlatformError
from cloudtrain.observe import Summary
from cloudtrain.platforms.base import Series
from cloudtrain.platforms.kubernetes.api.errors import KubeNotFound
from cloudtrain.platforms.kubernetes.life.objects import Snapshot
from cloudtrain.platforms.kubernetes.logs.lines import Line, LineParser, Position
from cloudtrain.platforms.kubernetes.logs.pod_log import Printed, Source
from cloudtrain.platforms.kubernetes.logs.reader import EventReader, SourceState, may_be_event, sources

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
    """The logs of a job's leaders: what was read once is not read again."""

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

    def _unread(self, objects: Snapshot, most: int = 0) -> list[SourceState]:
        """The leaders, or the newest ``most`` of them, whose logs may have grown; the oldest first."""
        found = sorted((one for one in sources(objects) if one.is_leader), key=lambda one: one.began)
        return [state for state in found[-most:] if state.source.uid not in self._is_complete]

    def _position(self, state: SourceState) -> Position:
        position = self._positions.setdefault(state.source.uid, Position())
        position.reconnect()
        return position

    def _add(self, source: Source, lines: Iterable[Line]) -> None:
        found = (Printed(line.time or 0, source, line.text) for line in lines if may_be_event(line))
        for event in self._reader.events(found):
            self._summary = self._summary or Summary()
            self._summary.add(event)


class RunningSummary(_Leaders):
    """The summary of a job's events so far, from its leader's log. Threads may share it.

    The first call reads the end of the log, and its beginning; later ones what is new. Of a log that grows by more than
    2,000 lines between two calls, events in between are left out.
    """

    _failures = 0

    def __call__(self, objects: Snapshot) -> Summary | None:
        """None if no leader has started, or its log cannot be read: describing a job does not fail for that."""
        with self._lock:
            if time.monotonic() >= self._due_at:
                try:
                    for state in self._unread(objects, 2):
                        self._read(state)
                    self._failures = 0
                except PlatformError:
                    self._failures += 1
                pause = min(FRESH_SECONDS * 2.0 ** min(self._failures, 10), AFTER_FAILURES)
                self._due_at = time.monotonic() + pause
            return self._summary

    def _read(self, state: SourceState) -> None:
        source, is_first = state.source, state.source.uid not in self._positions
        position = self._position(state)
        tail = _read(self._api, source, LONGEST_TAIL, since=position.since, tail=TAIL_LINES)
        lines = position.new(tail)
        if is_first and len(tail) >= TAIL_LINES:
            begin = tail[0].time or 0
            head = _read(self._api, source, HEAD_BYTES)
            lines = [*(line for line in head if (line.time or 0) < begin), *lines]
        self._add(source, lines)
        if state.has_ended:
            self._is_complete.add(source.uid)


class GrowingTrends(_Leaders):
    """The course of each metric of a job. Threads may share it.

    The first call reads the logs of the job's leaders, later ones what is new.
    """

    def __init__(self, api: Api, watch: JobWatch) -> None:
        super().__init__(api)
        self._watch = watch

    def __call__(self) -> Series:
        """Raises PlatformError."""
        with self._lock:
            if time.monotonic() >= self._due_at:
                for state in self._unread(self._watch.snapshot()):
                    with contextlib.suppress(KubeNotFound):  # the pod was deleted meanwhile
                        self._read(state)
                self._due_at = time.monotonic() + FRESH_TRENDS
            summary = self._summary or Summary()
            return {name: trend.series(summary.last) for name, trend in summary.trends.items()}

    def _read(self, state: SourceState) -> None:
        source, parser, position = state.source, LineParser(), self._position(state)
        with self._api.pod_log(source.pod, source.container, since=position.since) as stream:
            for chunk in stream.chunks():
                self._add(source, position.new(parser.feed(chunk)))
        if state.has_ended:  # else a line that is not complete yet arrives again
            self._add(source, position.new(parser.rest()))
            self._is_complete.add(source.uid)


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
            lines = _read(self._api, source, LONGEST_TAIL, tail=LAST_LINES)
        except PlatformError:
            return []
        shown = (line.text for line in lines if line.time is not None and not may_be_event(line))
        return [text.decode("utf-8", "backslashreplace").rstrip("\r") for text in shown]


def _read(
    api: Api, source: Source, size: int, *, since: float | None = None, tail: int | None = None
) -> list[Line]:
    """Lines of a log, at most ``size`` bytes. Raises PlatformError."""
    parser = LineParser()
    lines: list[Line] = []
    where = (source.pod, source.container)
    with api.pod_log(*where, since=since, tail=tail, idle=PATIENCE, attempts=2) as stream:
        for chunk in stream.chunks():
            lines += parser.feed(chunk)
            size -= len(chunk)
            if size <= 0:
                return lines
    return [*lines, *parser.rest()]
