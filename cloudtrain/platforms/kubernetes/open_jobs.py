"""The jobs that a process has asked about: each is watched once, for all who ask."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.job_watch import JobWatch
from cloudtrain.platforms.kubernetes.jobs import Place, Places
from cloudtrain.platforms.kubernetes.life.life import JobLife
from cloudtrain.platforms.kubernetes.life.memory import forget
from cloudtrain.platforms.kubernetes.logs.tail import LastLinesOf, RunningSummary
from cloudtrain.platforms.kubernetes.logs.trends import GrowingTrends

MOST = 100
"""Jobs that are kept: those asked about least recently are forgotten, and their watches end."""


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
        life = JobLife(
            place.api,
            place.kind,
            job_name,
            watch,
            uid=place.uid,
            last_lines=LastLinesOf(place.api, watch),
            summary=RunningSummary(place.api),
        )
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
