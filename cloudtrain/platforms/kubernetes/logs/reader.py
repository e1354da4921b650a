"""Reads the logs of a job's pods together, as its pods come and go: ``logs``, ``events`` and ``metrics``.

The leader of a job prints events about it between the lines of its ranks. Every other host prints such lines, too. The
leader's show the progress of the job.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudtrain.observe.event_lines import parse_event_line
from cloudtrain.observe.events import MARK, Event
from cloudtrain.platforms.base import Series
from cloudtrain.platforms.common.log_merge import LogMerge
from cloudtrain.platforms.kubernetes.api.kinds import MPI_JOB
from cloudtrain.platforms.kubernetes.life.describe import look_at, pods_of
from cloudtrain.platforms.kubernetes.life.objects import Snapshot, part, text
from cloudtrain.platforms.kubernetes.logs.lines import Line
from cloudtrain.platforms.kubernetes.logs.pod_log import PodLog, Printed, Source

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


@dataclass(frozen=True)
class SourceState:
    """One container with a log."""

    source: Source
    is_leader: bool
    began: float
    """When its pod was created, in seconds since the epoch."""
    has_ended: bool


def sources(objects: Snapshot) -> Iterator[SourceState]:
    """The container of each pod that runs the job, once it has started; the leader's first.

    Sidecars that others have added to a pod have their own logs.
    """
    for pod in pods_of(objects):
        state, last = part(pod.status, "state"), part(pod.status, "lastState")
        if not ("running" in state or "terminated" in state or "terminated" in last):
            continue
        # a container that is restarted in its pod continues the same log
        restarts = text(pod.found, "spec", "restartPolicy") != "Never"
        has_ended = pod.is_over or ("terminated" in state and not restarts)
        source = Source(pod.name, pod.uid, pod.container, pod.host)
        yield SourceState(source, pod.is_leader, pod.created, has_ended)


Choose = Callable[[SourceState], bool]
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
        for state in filter(self._choose, sources(objects)):
            key = f"{state.source.uid}/{state.source.container}"
            if key not in self._logs:
                self._logs[key] = PodLog(
                    self._api,
                    state.source,
                    self.news,
                    follow=self._follow,
                    wants=self._wants,
                    was_allowed=self._was_allowed,
                )
            if state.has_ended:
                self._logs[key].container_ended()
        for log in self._logs.values():
            if log.source.uid not in present:
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
        for at, source, line in found:
            event = parse_event_line(line, source.host, at / 1e9)
            if event is None:
                continue
            if source.uid not in self._pods:
                number = self._pods[source.uid] = len(self._pods)
                yield {"time": event["time"], "source": source.host, "event": "attempt", "attempt": number}
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
    found: dict[str, list[tuple[float, float]]] = {}
    for event in events(api, watch, follow=False):
        if event["event"] == "metric":
            found.setdefault(event["name"], []).append((event["time"], event["value"]))
    return found


def is_leader(state: SourceState) -> bool:
    return state.is_leader


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
    choose = is_leader if is_launched else lambda state: True
    # closing ends the connections as soon as the caller leaves
    with closing(merged(api, watch, choose, _is_shown, follow=follow)) as found:
        yield from map(shown, found)


def shown(found: Printed) -> str:
    """A line as users see it."""
    given = found.text.decode("utf-8", "backslashreplace")
    if "\r" in given:  # a progress bar overwrites its line
        given = given.rstrip("\r").rpartition("\r")[2]
    return given if _RANK.match(given) else f"[{found.source.host}] {given}"


def _is_shown(line: Line) -> bool:
    return not may_be_event(line) or parse_event_line(line.text, "") is None
