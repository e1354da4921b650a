"""Reads and merges the logs of a job's pods, while pods start and end: ``logs``, ``events`` and ``metrics``.

Every host prints events between the lines of its ranks. Those of the leader show the progress of the whole job: its
summary, and its metrics over time.
"""

from __future__ import annotations

import contextlib
import copy
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Any

from cloudtrain.errors import PlatformError
from cloudtrain.observe import Summary
from cloudtrain.observe.event_lines import parse_event_line
from cloudtrain.observe.events import MARK, Event
from cloudtrain.observe.metric_series import metric_series
from cloudtrain.platforms.base import Series
from cloudtrain.platforms.common.log_merge import LogMerge
from cloudtrain.platforms.kubernetes.api.errors import KubeNotFound
from cloudtrain.platforms.kubernetes.api.kinds import MPI_JOB
from cloudtrain.platforms.kubernetes.life.describe import look_at, pods_of
from cloudtrain.platforms.kubernetes.life.objects import Snapshot, text
from cloudtrain.platforms.kubernetes.life.pods import Pod
from cloudtrain.platforms.kubernetes.pod_log import (
    LONGEST_LINE,
    Line,
    LineParser,
    PodLog,
    Position,
    Printed,
)

if TYPE_CHECKING:
    from cloudtrain.platforms.kubernetes.api.client import Api
    from cloudtrain.platforms.kubernetes.life.job_watch import JobWatch

LOOK_SECONDS = 5.0
"""The maximum seconds between two looks at the pods if nothing changes."""
TICK = 0.3
"""The maximum seconds between two checks for changes if no log has new lines."""
UNSTARTED_SECONDS = 1.0
"""How long after the end of a job a pod may turn out to have started."""
SETTLE_SECONDS = 20.0
"""How long after the end of a job the logs of pods without a reported end are read."""
READERS = 16
MOST_LINES = 5000
"""The maximum number of lines of one log in one round of the merge."""

_MARK = MARK.encode()
_RANK = re.compile(r"\[rank \d+\] ")


def logged(objects: Snapshot) -> list[Pod]:
    """The pods in which the container that runs the job has started, the leader's first.

    Sidecars that others added to a pod have their own logs.
    """
    return [pod for pod in pods_of(objects) if pod.has_log]


Choose = Callable[[Pod], bool]
Wants = Callable[[Line], bool]


class _PodLogs:
    """The logs of a job, whose pods start and end meanwhile. Use it as a context manager, which ends all reading."""

    def __init__(self, api: Api, choose: Choose, wants: Wants, *, follow: bool) -> None:
        self.news = threading.Event()
        """Set when there are new lines."""
        self._api = api
        self._choose = choose
        self._wants = wants
        self._follow = follow
        self._logs: dict[str, PodLog] = {}
        self._was_allowed = threading.Event()
        self._merge: LogMerge[PodLog] = LogMerge(self._logs.values, lambda error: False, MOST_LINES)
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="log-merge")

    def __enter__(self) -> _PodLogs:
        return self

    def __exit__(self, *_: object) -> None:
        for log in self._logs.values():
            log.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def lines(self) -> Iterator[Printed]:
        """The new lines so far in the order of their times; all lines if the logs are not followed.

        Raises CloudtrainError if a log cannot be read.
        """
        return self._merge.round(self._pool, is_partial=self._follow)

    def look(self, objects: Snapshot) -> int:
        """Start to read logs of new containers, and mark ended ones. Returns the number of open logs."""
        present = {text(pod, "metadata", "uid") for pod in objects.pods}
        for pod in filter(self._choose, logged(objects)):
            key = f"{pod.uid}/{pod.container}"
            if key not in self._logs:
                self._logs[key] = PodLog(
                    self._api,
                    pod,
                    self.news,
                    follow=self._follow,
                    wants=self._wants,
                    was_allowed=self._was_allowed,
                )
            if pod.log_has_ended:
                self._logs[key].container_ended()
        for log in self._logs.values():
            if log.pod.uid not in present:
                log.pod_gone()
            log.drop_silence()
        return sum(not log.is_over for log in self._logs.values())

    def end_unreported(self) -> None:
        """Stop reading pods without a reported end, because the job ended long ago: their nodes may be lost."""
        for log in self._logs.values():
            if log.may_grow:
                log.stop()


def merged(
    api: Api, watch: JobWatch, choose: Choose, wants: Wants, *, follow: bool
) -> Generator[Printed, None, None]:
    """The lines that the job's pods have printed so far, in the order of their times.

    With ``follow``, until the job has ended, including pods that start later. Old lines are in order; so are new ones,
    unless they arrive more than half a second late.

    Raises:
        PlatformError: the credentials do not permit reading logs, or the API server has not responded for long.
    """
    final_since, looked = None, float("-inf")
    with _PodLogs(api, choose, wants, follow=follow) as logs:
        if not follow:
            logs.look(watch.known())
            yield from logs.lines()
            return
        while True:
            logs.news.clear()
            if watch.wait(0.0) or time.monotonic() - looked > LOOK_SECONDS or final_since:
                objects, looked = watch.snapshot(), time.monotonic()
                open_logs = logs.look(objects)
                final_since = (final_since or looked) if _is_final(objects) else None
                if final_since and looked - final_since > SETTLE_SECONDS:
                    logs.end_unreported()
                if final_since and not open_logs and looked - final_since >= _rest(objects):
                    return
            yield from logs.lines()
            logs.news.wait(TICK)


def _is_final(objects: Snapshot) -> bool:
    """Whether the job has ended, or was deleted. A stopped job may only be suspended."""
    return objects.owner is None or look_at(objects, time.time()).verdict.status.is_final


def _rest(objects: Snapshot) -> float:
    """The seconds after the end of a job in which its pods may still change, because their changes may arrive later."""
    phases = {text(pod, "status", "phase") for pod in objects.pods}
    if phases <= {"Succeeded", "Failed"}:
        return 0.0
    return SETTLE_SECONDS if "Running" in phases else UNSTARTED_SECONDS


class EventReader:
    """Turns lines of leaders into events, with an additional one for each attempt, which is a new pod of the leader."""

    def __init__(self) -> None:
        self._pods: dict[str, int] = {}

    def events(self, found: Iterable[Printed]) -> Iterator[Event]:
        """The events in the lines, in order."""
        for at, pod, line in found:
            event = parse_event_line(line, pod.host, at / 1e9)
            if event is None:
                continue
            if pod.uid not in self._pods:
                number = self._pods[pod.uid] = len(self._pods)
                yield {"time": event["time"], "source": pod.host, "event": "attempt", "attempt": number}
            yield event


def events(api: Api, watch: JobWatch, *, follow: bool) -> Generator[dict[str, Any], None, None]:
    """The events of the job, in the order in which they were printed.

    Raises:
        PlatformError: the credentials do not permit reading logs, or the API server does not answer.
    """
    with closing(merged(api, watch, is_leader, may_be_event, follow=follow)) as found:
        yield from EventReader().events(found)


def metrics(api: Api, watch: JobWatch) -> Series:
    """All printed values of each metric, at most one per second. Raises PlatformError."""
    return metric_series(events(api, watch, follow=False))


def is_leader(pod: Pod) -> bool:
    return pod.is_leader


def may_be_event(line: Line) -> bool:
    return line.text.startswith(_MARK)


def logs(api: Api, watch: JobWatch, *, follow: bool) -> Generator[str, None, None]:
    """The lines of all hosts in the order of their times, each with its rank, or else its host, as prefix.

    Events of the runtime are left out. Of an MPIJob, only the launcher's log is read: it includes the lines of the
    workers, whose pods are deleted when the job ends.

    Raises:
        PlatformError: the credentials do not permit reading logs, or the API server does not answer.
    """
    is_launched = text(watch.known().owner, "kind") == MPI_JOB.kind
    choose = is_leader if is_launched else lambda pod: True
    # closing ends the connections as soon as the caller stops reading
    with closing(merged(api, watch, choose, _is_shown, follow=follow)) as found:
        yield from map(shown, found)


def shown(found: Printed) -> str:
    """A line as it is displayed."""
    given = found.text.decode("utf-8", "backslashreplace")
    if "\r" in given:  # a progress bar overwrites its line
        given = given.rstrip("\r").rpartition("\r")[2]
    return given if _RANK.match(given) else f"[{found.pod.host}] {given}"


def _is_shown(line: Line) -> bool:
    return not may_be_event(line) or parse_event_line(line.text, "") is None


TAIL_LINES = 2000
HEAD_BYTES = 1 << 18
"""The size of the part to read from the beginning of a log, which has the first phases."""
LONGEST_TAIL = 8 << 20
"""The maximum number of bytes to read from one log, whose lines may be long."""
FRESH_SECONDS = 3.0
"""A summary newer than this is not updated."""
FRESH_WHOLE = 2.0
"""A summary of all events that is newer than this is not updated."""
AFTER_FAILURES = 30.0
"""The maximum pause between updates while the log cannot be read."""
PATIENCE = 5.0
"""How many seconds a description waits for a kubelet, whose node may be lost."""

LAST_LINES = 500
MOST_HOSTS = 50
"""The maximum number of hosts whose last lines are read if the failed host is unknown."""


class _Leaders:
    """The logs of a job's leaders. No part is read twice. Threads may share it."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._reader = EventReader()
        self._summary: Summary | None = None
        self._positions: dict[str, Position] = {}
        """By pod."""
        self._is_complete: set[str] = set()
        """The pods whose logs were complete when they were read."""
        self._due_at = float("-inf")

    def _read_new(self, objects: Snapshot, *, tail: int | None = None, most: int = 0) -> None:
        """Read the new lines of the leaders' logs, oldest log first. Raises PlatformError.

        Args:
            tail: read at most this many lines from the end, and the beginning of a longer log; None: read all lines.
            most: read only the newest leaders, up to this number; 0: all.
        """
        found = sorted(filter(is_leader, logged(objects)), key=lambda pod: pod.created)
        for pod in found[-most:]:
            if pod.uid in self._is_complete:
                continue
            position = self._positions.setdefault(pod.uid, Position())
            position.reconnect()
            with contextlib.suppress(KubeNotFound):  # the pod was deleted meanwhile
                if tail is None:
                    for lines in read_log(self._api, pod, since=position.since, is_whole=pod.log_has_ended):
                        self._add(pod, position.new(lines))
                else:
                    self._read_ends(pod, position, tail)
                if pod.log_has_ended:
                    self._is_complete.add(pod.uid)

    def _read_ends(self, pod: Pod, position: Position, tail: int) -> None:
        limits: dict[str, Any] = {"idle": PATIENCE, "attempts": 2}
        is_first = position.since is None
        end = [*chain(*read_log(self._api, pod, LONGEST_TAIL, since=position.since, tail=tail, **limits))]
        head: list[Line] = []
        if is_first and len(end) >= tail:
            head = [*chain(*read_log(self._api, pod, HEAD_BYTES, **limits))]
        before = [line for line in head if (line.time or 0) < (end[0].time or 0)]
        # add lines only after both reads: if one fails, the next call repeats both
        self._add(pod, [*before, *position.new(end)])

    def _add(self, pod: Pod, lines: Iterable[Line]) -> None:
        found = (Printed(line.time or 0, pod, line.text) for line in lines if may_be_event(line))
        for event in self._reader.events(found):
            self._summary = self._summary or Summary()
            self._summary.add(event)


class RunningSummary(_Leaders):
    """The summary of a job's events so far, from its leader's log.

    The first call reads the end of the log and its beginning; later ones read the new lines. If the log grows by more
    than 2,000 lines between two calls, events in between are left out.
    """

    _failures = 0

    def __call__(self, objects: Snapshot) -> Summary | None:
        """None if no leader has started, or its log cannot be read, which must not make a description fail."""
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


class WholeSummary(_Leaders):
    """The summary of all events of a job, from all of its leaders' logs."""

    def __init__(self, api: Api, watch: JobWatch) -> None:
        super().__init__(api)
        self._watch = watch

    def __call__(self) -> Summary:
        """A copy of it. Raises PlatformError."""
        with self._lock:
            if time.monotonic() >= self._due_at:
                self._read_new(self._watch.snapshot())
                self._due_at = time.monotonic() + FRESH_WHOLE
            return copy.deepcopy(self._summary or Summary())


class LastLinesOf:
    """The last lines of a host, or of all hosts: see `common.failure.LastLines`."""

    def __init__(self, api: Api, watch: JobWatch) -> None:
        self._api = api
        self._watch = watch

    def __call__(self, host: str | None) -> Mapping[str, Sequence[str]]:
        """The lines by host, without events. Hosts whose logs no longer exist are left out. Raises PlatformError."""
        newest = {pod.host: pod for pod in logged(self._watch.known())}
        chosen = [newest[host]] if host in newest else list(newest.values())[:MOST_HOSTS]
        with ThreadPoolExecutor(READERS) as pool:
            ends = pool.map(self._end, chosen)
            return {pod.host: lines for pod, lines in zip(chosen, ends, strict=True) if lines}

    def _end(self, pod: Pod) -> list[str]:
        try:
            lines = [
                *chain(*read_log(self._api, pod, LONGEST_TAIL, tail=LAST_LINES, idle=PATIENCE, attempts=2))
            ]
        except PlatformError:
            return []
        shown = (line.text for line in lines if line.time is not None and not may_be_event(line))
        return [text.decode("utf-8", "backslashreplace").rstrip("\r") for text in shown]


def read_log(
    api: Api, pod: Pod, size: float = float("inf"), *, is_whole: bool = True, **how: Any
) -> Iterator[list[Line]]:
    """Lines of a log as they arrive, at most about ``size`` bytes. Raises PlatformError.

    Args:
        is_whole: whether to include a last line without a line end. If not, a later read returns it.
        how: see `Api.pod_log`.
    """
    parser = LineParser()
    with api.pod_log(pod.name, pod.container, **how) as stream:
        for lines in stream.batches(LONGEST_LINE):
            yield parser.lines(lines)
            size -= sum(map(len, lines))
            if size <= 0:
                return
        if is_whole and stream.rest:
            yield parser.lines([stream.rest])
