"""The jobs that a process has requested: each is watched once, for all callers. Also the list of all jobs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from cloudtrain.platforms.base import JobDescription
from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.jobs import Place, Places
from cloudtrain.platforms.kubernetes.life.describe import describe, look_at
from cloudtrain.platforms.kubernetes.life.job_watch import JobWatch
from cloudtrain.platforms.kubernetes.life.life import JobLife, command_for, forget
from cloudtrain.platforms.kubernetes.life.objects import Snapshot
from cloudtrain.platforms.kubernetes.logs.tail import GrowingTrends, LastLinesOf, RunningSummary

MOST = 100
"""Jobs that are kept: those read least recently are forgotten, and their watches end."""


@dataclass(frozen=True)
class OpenJob:
    """One job: where it is, its objects, and what they mean."""

    place: Place
    watch: JobWatch
    life: JobLife
    trends: GrowingTrends

    @property
    def api(self) -> Api:
        return self.place.api


class OpenJobs:
    """Opens jobs by name. Threads may share it."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._open: OrderedDict[str, OpenJob] = OrderedDict()

    def find(self, job_name: str) -> OpenJob:
        """Raises JobNotFound, PlatformError."""
        with self._lock:
            found = self._open.get(job_name)
            if found:
                self._open.move_to_end(job_name)
                return found
        place = self._places.find(job_name)
        watch = JobWatch(place.api, place.kind, job_name)
        lines, summary = LastLinesOf(place.api, watch), RunningSummary(place.api)
        where = place.api, place.kind, job_name, watch
        life = JobLife(*where, uid=place.uid, last_lines=lines, summary=summary)
        with self._lock:
            opened = OpenJob(place, watch, life, GrowingTrends(place.api, watch))
            found = self._open.setdefault(job_name, opened)
            while len(self._open) > MOST:
                self._open.popitem(last=False)[1].watch.close()
        return found

    def forget(self, job_name: str) -> None:
        """The next job of this name is another one."""
        with self._lock:
            found = self._open.pop(job_name, None)
        forget(job_name)
        if found:
            found.watch.close()


def list_jobs(places: Places) -> Iterator[JobDescription]:
    """The jobs, the newest first, from one list of each kind and one of pods. Raises PlatformError."""
    found = []
    for job in places.list():
        api = job.place.api
        look = look_at(Snapshot(job.owner, job.pods), api.now())
        found.append(describe(look, command=command_for(api, job.place.kind, job.owner)))
    return iter(sorted(found, key=lambda job: job.submitted_at, reverse=True))
