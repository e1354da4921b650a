"""Reads the logs of a job's pods together, as its pods come and go: ``logs``, ``events`` and ``metrics``.

The leader of a job prints events about it between the lines of its ranks. Every other host prints such lines, too. The
leader's show the progress of the job.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudtrain.errors import CloudtrainError
from cloudtrain.observe.event_lines import parse_event_line
from cloudtrain.observe.events import MARK, Event
from cloudtrain.platforms.base import Series
from cloudtrain.platforms.kubernetes.api.kinds import MPI_JOB
from cloudtrain.platforms.kubernetes.life.describe import look_at, pods_of
from cloudtrain.platforms.kubernetes.life.objects import Snapshot, part, text
from cloudtrain.platforms.kubernetes.logs.lines import Line
from cloudtrain.platforms.kubernetes.logs.merge import LiveMerge
from cloudtrain.platforms.kubernetes.logs.pod_log import PodLog, Source

if TYPE_CHECKING:
    from cloudtrain.platforms.kubernetes.api.client import Api
    from cloudtrain.platforms.kubernetes.life.job_watch import JobWatch

LOOK_SECONDS = 5.0
"""The most seconds between two looks at the pods, if nothing changes."""
FINAL_LOOK_SECONDS = 0.3
"""The same once the job has ended."""
UNSTARTED_SECONDS = 1.0
"""For so long after the end of a job, pods that are not known to have started may have done so."""
SETTLE_SECONDS = 20.0
"""For so long after the end of a job, logs of pods that are not reported as ended are read."""

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


Chosen = tuple[Source, Line]
Choose = Callable[[SourceState], bool]
Wants = Callable[[Line], bool]


def read_logs(api: Api, objects: Snapshot, choose: Choose, wants: Wants) -> Generator[Chosen, None, None]:
    """The lines that the job's pods have printed so far, in the order of their times. Raises PlatformError."""
    merged = LiveMerge(is_strict=True)
    logs = [
        PodLog(api, state.source, merged.inlet(), follow=False, wants=wants)
        for state in sources(objects)
        if choose(state)
    ]
    by_number = {log.inlet.number: log.source for log in logs}
    try:
        for log in logs:
            log.start()
        while not merged.is_empty:
            for entry in merged.round():
                yield by_number[entry.number], Line(entry.time, entry.text)
            _raise_first(logs)
        _raise_first(logs)
    finally:
        for log in logs:
            log.stop()


def follow_logs(api: Api, watch: JobWatch, choose: Choose, wants: Wants) -> Generator[Chosen, None, None]:
    """The lines that the job's pods print, until it has ended. Waits for pods that have not started yet.

    Lines printed long ago are in order; new ones are, too, but for those that arrive late by more than half a second.

    Raises:
        PlatformError: the credentials do not permit reading logs, or the API server has not answered for long.
    """
    following = _Following(api, watch, choose, wants)
    try:
        following.start()
        while not following.is_over:
            for entry in following.merged.round():
                yield following.source(entry.number), Line(entry.time, entry.text)
            following.check()
        following.check()
    finally:
        following.stop()


class _Following:
    """The logs of a job whose pods come and go."""

    def __init__(self, api: Api, watch: JobWatch, choose: Choose, wants: Wants) -> None:
        self.merged = LiveMerge()
        self._api = api
        self._watch = watch
        self._choose = choose
        self._wants = wants
        self._lock = threading.Lock()
        self._logs: dict[tuple[str, str], PodLog] = {}
        self._sources: dict[int, Source] = {}
        self._error: CloudtrainError | None = None
        self._was_allowed = threading.Event()
        self._has_ended = threading.Event()
        """Whether the job has ended, and with it all logs."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-pods", daemon=True)

    def start(self) -> None:
        self._look(self._watch.snapshot())
        self._thread.start()

    def source(self, number: int) -> Source:
        return self._sources[number]

    @property
    def is_over(self) -> bool:
        return self._has_ended.is_set() and self.merged.is_empty

    def check(self) -> None:
        """Raises what ended the watch or a log."""
        if self._error:
            raise self._error
        with self._lock:
            _raise_first(self._logs.values())

    def stop(self) -> None:
        """End everything. Returns immediately."""
        self._stopped.set()
        with self._lock:
            for log in self._logs.values():
                log.stop()

    def _run(self) -> None:
        final_since = None
        try:
            while not self._stopped.is_set():
                objects = self._watch.snapshot()
                open_logs = self._look(objects)
                final_since = (final_since or time.monotonic()) if _is_final(objects) else None
                if final_since is not None:
                    for_seconds = time.monotonic() - final_since
                    if for_seconds > SETTLE_SECONDS:
                        self._end_all()
                    if not open_logs and for_seconds >= _rest(objects):
                        self._has_ended.set()
                        return
                self._watch.wait(LOOK_SECONDS if final_since is None else FINAL_LOOK_SECONDS)
        except CloudtrainError as error:
            self._error = error
        except Exception as error:  # a thread must not end in silence
            self._error = CloudtrainError(f"the logs cannot be followed: {error!r}")

    def _look(self, objects: Snapshot) -> int:
        """Begin the logs of new containers, and note which have ended. Returns the number of open logs."""
        present = {text(pod, "metadata", "uid") for pod in objects.pods}
        with self._lock:
            if self._stopped.is_set():
                return 0
            for state in filter(self._choose, sources(objects)):
                key = (state.source.uid, state.source.container)
                log = self._logs.get(key)
                if log is None:
                    inlet = self.merged.inlet()
                    self._sources[inlet.number] = state.source
                    log = self._logs[key] = PodLog(
                        self._api,
                        state.source,
                        inlet,
                        follow=True,
                        wants=self._wants,
                        was_allowed=self._was_allowed,
                    )
                    log.start()
                if state.has_ended:
                    log.container_ended()
            for (uid, _), log in self._logs.items():
                if uid not in present:
                    log.pod_gone()
                log.drop_silence()
            return sum(not log.is_over for log in self._logs.values())

    def _end_all(self) -> None:
        """The job has ended long ago: pods that are not reported as ended may be on nodes that are lost."""
        with self._lock:
            for log in self._logs.values():
                if log.may_grow:
                    log.stop()


def _is_final(objects: Snapshot) -> bool:
    """Whether the job has ended, or is gone. A job that was stopped may only be suspended."""
    return objects.owner is None or look_at(objects, time.time()).verdict.status.is_final


def _rest(objects: Snapshot) -> float:
    """For how many seconds after the end of a job its pods may still change: the news of them may come later."""
    phases = {text(pod, "status", "phase") for pod in objects.pods}
    if phases <= {"Succeeded", "Failed"}:
        return 0.0
    return SETTLE_SECONDS if "Running" in phases else UNSTARTED_SECONDS


def _raise_first(logs: Iterable[PodLog]) -> None:
    for log in logs:
        if log.error:
            raise log.error


class EventReader:
    """Turns lines of leaders into events. A new pod of the leader is a new attempt, which has an event too."""

    def __init__(self) -> None:
        self._pods: dict[str, int] = {}

    def events(self, found: Iterable[Chosen]) -> Iterator[Event]:
        """The events in lines, in their order."""
        for source, line in found:
            event = self._parse(source, line)
            if event is not None:
                yield from self._attempt(source, event)
                yield event

    def _parse(self, source: Source, line: Line) -> Event | None:
        return parse_event_line(line.text, source.host, None if line.time is None else line.time / 1e9)

    def _attempt(self, source: Source, event: Event) -> Iterator[Event]:
        if source.uid not in self._pods:
            number = self._pods[source.uid] = len(self._pods)
            yield {"time": event["time"], "source": source.host, "event": "attempt", "attempt": number}


def events(api: Api, watch: JobWatch, *, follow: bool) -> Generator[dict[str, Any], None, None]:
    """The events of the job, in the order in which they were printed.

    Raises:
        PlatformError: the credentials do not permit reading logs, or the API server does not answer.
    """
    found = (
        follow_logs(api, watch, is_leader, may_be_event)
        if follow
        else read_logs(api, watch.known(), is_leader, may_be_event)
    )
    with closing(found):
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
    objects = watch.known()
    choose = is_leader if text(objects.owner, "kind") == MPI_JOB.kind else _is_any
    found = (
        follow_logs(api, watch, choose, _is_shown) if follow else read_logs(api, objects, choose, _is_shown)
    )
    with closing(found):  # ends the connections as soon as the caller leaves
        yield from map(shown, found)


def shown(found: Chosen) -> str:
    """A line as users see it."""
    source, line = found
    given = line.text.decode("utf-8", "backslashreplace")
    if "\r" in given:  # a progress bar overwrites its line
        given = given.rstrip("\r").rpartition("\r")[2]
    return given if _RANK.match(given) else f"[{source.host}] {given}"


def _is_any(state: SourceState) -> bool:
    return True


def _is_shown(line: Line) -> bool:
    return not may_be_event(line) or parse_event_line(line.text, "") is None
