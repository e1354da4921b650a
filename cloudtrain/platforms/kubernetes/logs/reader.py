"""Reads the logs of a job's pods together, as its pods come and go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable
from typing import Protocol

from cloudtrain.errors import CloudtrainError
from cloudtrain.platforms.kubernetes.life.describe import look_at
from cloudtrain.platforms.kubernetes.life.objects import JobObjects, text
from cloudtrain.platforms.kubernetes.logs.lines import Line
from cloudtrain.platforms.kubernetes.logs.merge import LiveMerge
from cloudtrain.platforms.kubernetes.logs.pod_log import LogApi, PodLog, Source
from cloudtrain.platforms.kubernetes.logs.sources import SourceState, sources

LOOK_SECONDS = 5.0
"""The most seconds between two looks at the pods, if nothing changes."""
FINAL_LOOK_SECONDS = 0.3
"""The same once the job has ended."""
UNSTARTED_SECONDS = 1.0
"""For so long after the end of a job, pods that are not known to have started may have done so."""
SETTLE_SECONDS = 20.0
"""For so long after the end of a job, logs of pods that are not reported as ended are read."""


class Watch(Protocol):
    """The part of `job_watch.JobWatch` that logs need."""

    def snapshot(self) -> JobObjects: ...
    def known(self) -> JobObjects: ...
    def wait(self, timeout: float) -> bool: ...


Chosen = tuple[Source, Line]


def read_logs(
    api: LogApi,
    objects: JobObjects,
    *,
    choose: Callable[[SourceState], bool] = lambda state: True,
    wants: Callable[[Line], bool] = lambda line: True,
) -> Generator[Chosen, None, None]:
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


def follow_logs(
    api: LogApi,
    watch: Watch,
    *,
    choose: Callable[[SourceState], bool] = lambda state: True,
    wants: Callable[[Line], bool] = lambda line: True,
) -> Generator[Chosen, None, None]:
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

    def __init__(
        self,
        api: LogApi,
        watch: Watch,
        choose: Callable[[SourceState], bool],
        wants: Callable[[Line], bool],
    ) -> None:
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

    def _look(self, objects: JobObjects) -> int:
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


def _is_final(objects: JobObjects) -> bool:
    """Whether the job has ended, or is gone. A job that was stopped may only be suspended."""
    return objects.owner is None or look_at(objects, time.time()).verdict.status.is_final


def _rest(objects: JobObjects) -> float:
    """For how many seconds after the end of a job its pods may still change: the news of them may come later."""
    phases = {text(pod, "status", "phase") for pod in objects.pods}
    if phases <= {"Succeeded", "Failed"}:
        return 0.0
    return SETTLE_SECONDS if "Running" in phases else UNSTARTED_SECONDS


def _raise_first(logs: Iterable[PodLog]) -> None:
    for log in logs:
        if log.error:
            raise log.error
