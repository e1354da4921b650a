"""The ends of logs: the progress of a running job, and the last lines of a host."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from cloudtrain.errors import PlatformError
from cloudtrain.observe import Summary
from cloudtrain.platforms.kubernetes.life.objects import JobObjects
from cloudtrain.platforms.kubernetes.logs.events import EventReader, may_be_event
from cloudtrain.platforms.kubernetes.logs.lines import Line, LineParser
from cloudtrain.platforms.kubernetes.logs.pod_log import LogApi, Source
from cloudtrain.platforms.kubernetes.logs.position import Position
from cloudtrain.platforms.kubernetes.logs.reader import Watch
from cloudtrain.platforms.kubernetes.logs.sources import SourceState, sources

TAIL_LINES = 2000
HEAD_BYTES = 1 << 18
"""Of the beginning of a log, which has the first phases."""
LONGEST_TAIL = 8 << 20
"""Bytes that are read of one log: its lines may be long."""
FRESH_SECONDS = 3.0
"""A summary younger than this is not renewed."""
AFTER_FAILURES = 30.0
"""The same while the log cannot be read, after some failures."""
PATIENCE = 5.0
"""Seconds that a description waits for a kubelet: its node may be lost."""

LAST_LINES = 500
MOST_HOSTS = 50
"""Hosts whose last lines are read if it is not known which one failed."""
READERS = 10


class RunningSummary:
    """The summary of a job's events so far, from its leader's log. Threads may share it.

    The first call reads the end of the log, and its beginning; later ones what is new. Of a log that grows by more than
    2,000 lines between two calls, events in between are left out.
    """

    def __init__(self, api: LogApi) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._summary: Summary | None = None
        self._reader = EventReader()
        self._positions: dict[str, Position] = {}
        """By pod."""
        self._is_complete: set[str] = set()
        """The pods that had ended when they were read."""
        self._due_at = float("-inf")
        self._failures = 0

    def __call__(self, objects: JobObjects) -> Summary | None:
        """None if no leader has started, or its log cannot be read: describing a job does not fail for that."""
        with self._lock:
            if time.monotonic() >= self._due_at:
                try:
                    self._renew(objects)
                    self._failures = 0
                except PlatformError:
                    self._failures += 1
                pause = min(FRESH_SECONDS * 2.0 ** min(self._failures, 10), AFTER_FAILURES)
                self._due_at = time.monotonic() + pause
            return self._summary

    def _renew(self, objects: JobObjects) -> None:
        leaders = [state for state in sources(objects) if state.is_leader]
        for state in leaders[-2:]:
            if state.source.uid not in self._is_complete:
                self._add(state)
                if state.has_ended:
                    self._is_complete.add(state.source.uid)

    def _add(self, state: SourceState) -> None:
        source = state.source
        position = self._positions.get(source.uid)
        is_first = position is None
        position = self._positions.setdefault(source.uid, Position())
        position.reconnect()
        tail = _read(self._api, source, LONGEST_TAIL, since=position.since, tail=TAIL_LINES)
        new = position.new(tail)
        lines = [*new, *position.rest()]
        if is_first and len(tail) >= TAIL_LINES:
            begin = tail[0].time or 0
            head = _read(self._api, source, HEAD_BYTES)
            lines = [*(line for line in head if (line.time or 0) < begin), *lines]
        for event in self._reader.events((source, line) for line in lines):
            self._summary = self._summary or Summary()
            self._summary.add(event)


class LastLinesOf:
    """The last lines of a host, or of all hosts: see `common.failure.LastLines`."""

    def __init__(self, api: LogApi, watch: Watch) -> None:
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
    api: LogApi, source: Source, size: int, *, since: float | None = None, tail: int | None = None
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
