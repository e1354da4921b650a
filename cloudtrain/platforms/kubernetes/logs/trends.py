"""The course of metrics, for a caller that asks again and again: what was read once is not read again."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable

from cloudtrain.observe import Summary
from cloudtrain.platforms.base import Series
from cloudtrain.platforms.kubernetes.api.errors import KubeNotFound
from cloudtrain.platforms.kubernetes.logs.events import EventReader, may_be_event
from cloudtrain.platforms.kubernetes.logs.lines import Line, LineParser
from cloudtrain.platforms.kubernetes.logs.pod_log import LogApi, Source
from cloudtrain.platforms.kubernetes.logs.position import Position
from cloudtrain.platforms.kubernetes.logs.reader import Watch
from cloudtrain.platforms.kubernetes.logs.sources import SourceState, sources

FRESH_SECONDS = 2.0
"""Trends younger than this are not renewed."""


class GrowingTrends:
    """The course of each metric of a job. Threads may share it.

    The first call reads the logs of the job's leaders, later ones what is new.
    """

    def __init__(self, api: LogApi, watch: Watch) -> None:
        self._api = api
        self._watch = watch
        self._lock = threading.Lock()
        self._summary = Summary()
        self._reader = EventReader()
        self._positions: dict[str, Position] = {}
        """By pod."""
        self._is_complete: set[str] = set()
        """The pods that had ended when they were read."""
        self._read_at = float("-inf")

    def __call__(self) -> Series:
        """Raises PlatformError."""
        with self._lock:
            if time.monotonic() - self._read_at >= FRESH_SECONDS:
                self._renew()
                self._read_at = time.monotonic()
            summary = self._summary
            return {name: trend.series(summary.last) for name, trend in summary.trends.items()}

    def _renew(self) -> None:
        found = (state for state in sources(self._watch.snapshot()) if state.is_leader)
        for state in sorted(found, key=lambda state: state.began):
            if state.source.uid not in self._is_complete:
                with contextlib.suppress(KubeNotFound):  # the pod was deleted meanwhile
                    self._read(state)

    def _read(self, state: SourceState) -> None:
        source, parser = state.source, LineParser()
        position = self._positions.setdefault(source.uid, Position())
        position.reconnect()
        with self._api.pod_log(source.pod, source.container, since=position.since) as stream:
            for chunk in stream.chunks():
                self._add(source, position.new(parser.feed(chunk)))
        # a line that is not complete yet comes again
        self._add(source, position.rest())
        if state.has_ended:
            self._add(source, position.new(parser.rest()))
            self._is_complete.add(source.uid)

    def _add(self, source: Source, lines: Iterable[Line]) -> None:
        for event in self._reader.events((source, line) for line in lines if may_be_event(line)):
            self._summary.add(event)
