"""Reads the logs of a job's pods together, as its pods come and go: ``logs``, ``events`` and ``metrics``.

The leader of a job prints events about it between the lines of its ranks. Every other host prints such lines, too. The
leader's show the progress of the job: its summary, and the course of its metrics.
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
"""The most seconds between two looks at the pods, if nothing changes."""
TICK = 0.3
"""The most seconds between two looks for changes, if no log has new lines."""
UNSTARTED_SECONDS = 1.0
"""For this long after the end of a job, pods that are not known to have started may have done so."""
SETTLE_SECONDS = 20.0
"""For this long after the end of a job, logs of pods that are not reported as ended are read."""
READERS = 16
MOST_LINES = 5000
"""Lines of one log that are merged in one round."""

_MARK = MARK.encode()
_RANK = re.compile(r"\[rank \d+\] ")


def logged(objects: Snapshot) -> list[Pod]:
    """The pods whose container that runs the job has started; the leader's first.

    Sidecars that others have added to a pod have their own logs.
    """
    return [pod for pod in pods_of(objects) if pod.has_log]


Choose = Callable[[Pod], bool]
Wants = Callable[[Line], bool]


class _PodLogs:
    """The logs of a job whose pods come and go. Use as a context manager, which ends them all."""

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
        """The new lines so far, in the order of their times; all lines, unless the logs are followed.

        Raises CloudtrainError if a log cannot be read.
        """
        return self._merge.round(self._pool, is_partial=self._follow)

    def look(self, objects: Snapshot) -> int:
        """Begin the logs of new containers, and note which have ended. Returns the number of open logs."""
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
        """The job ended long ago: pods that are not reported as ended may be on nodes that are lost."""
        for log in self._logs.values():
            if log.may_grow:
                log.stop()


def merged(
    api: Api, watch: JobWatch, choose: Choose, wants: Wants, *, follow: bool
) -> Generator[Printed, None, None]:
    """The lines that the job's pods have printed so far, in the order of their times.

    With ``follow``, until the job has ended: it waits for pods that have not started yet. Lines printed long ago are in
    order; new ones are, too, but for those that arrive late by more than half a second.

    Raises:
        PlatformError: the credentials do not permit reading logs, or the API server has not answered for long.
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
    """Whether the job has ended, or is gone. A job that was stopped may only be suspended."""
    return objects.owner is None or look_at(objects, time.time()).verdict.status.is_final


def _rest(objects: Snapshot) -> float:
    """For how many seconds after the end of a job its pods may still change: the news of them may arrive later."""
    phases = {text(pod, "status", "phase") for pod in objects.pods}
    if phases <= {"Succeeded", "Failed"}:
        return 0.0
    return SETTLE_SECONDS if "Running" in phases else UNSTARTED_SECONDS


class EventReader:
    """Turns lines of leaders into events. A new pod of the leader is a new attempt, which has an event too."""

    def __init__(self) -> None:
        self._pods: dict[str, int] = {}

    def events(self, found: Iterable[Printed]) -> Iterator[Event]:
        """The events in lines, in their order."""
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
    """All values of each metric that were printed: at most one a second. Raises PlatformError."""
    return metric_series(events(api, watch, follow=False))


def is_leader(pod: Pod) -> bool:
    return pod.is_leader


def may_be_event(line: Line) -> bool:
    return line.text.startswith(_MARK)


def logs(api: Api, watch: JobWatch, *, follow: bool) -> Generator[str, None, None]:
    """The lines of all hosts in the order of their times, each with its rank, or else its host, as prefix.

    Lines that are events of the runtime are left out. The launcher of an MPIJob also has the lines of its workers,
    whose pods are deleted when it ends: only its log is read.

    Raises:
        PlatformError: the credentials do not permit reading logs, or the API server does not answer.
    """
    is_launched = text(watch.known().owner, "kind") == MPI_JOB.kind
    choose = is_leader if is_launched else lambda pod: True
    # closing ends the connections as soon as the caller leaves
    with closing(merged(api, watch, choose, _is_shown, follow=follow)) as found:
        yield from map(shown, found)


def shown(found: Printed) -> str:
    """A line as users see it."""
    given = found.text.decode("utf-8", "backslashreplace")
    if "\r" in given:  # a progress bar overwrites its line
        given = given.rstrip("\r").rpartition("\r")[2]
    return given if _RANK.match(given) else f"[{found.pod.host}] {given}"


def _is_shown(line: Line) -> bool:
    return not may_be_event(line) or parse_event_line(line.text, "") is None


TAIL_LINES = 2000
HEAD_BYTES = 1 << 18
"""Of the beginning of a log, which has the first phases."""
LONGEST_TAIL = 8 << 20
"""Bytes that are read of one log: its lines may be long."""
FRESH_SECONDS = 3.0
"""A summary younger than this is not renewed."""
FRESH_WHOLE = 2.0
"""The same for the summary of all events."""
AFTER_FAILURES = 30.0
"""The same while the log cannot be read, after some failures."""
PATIENCE = 5.0
"""Seconds that a description waits for a kubelet: its node may be lost."""

LAST_LINES = 500
MOST_HOSTS = 50
"""Hosts whose last lines are read if it is not known which one failed."""


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
            most: read only this number of leaders, the newest.
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
        # only now: after a failure of a read, the next call reads both again
        self._add(pod, [*before, *position.new(end)])

    def _add(self, pod: Pod, lines: Iterable[Line]) -> None:
        found = (Printed(line.time or 0, pod, line.text) for line in lines if may_be_event(line))
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
        """By host, without the lines that are events. Hosts whose logs are gone are left out. Raises PlatformError."""
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
        is_whole: whether the last line counts although it has no end: else it arrives again.
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
