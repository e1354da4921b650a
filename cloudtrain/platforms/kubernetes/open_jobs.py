"""The jobs that a process has asked about, each with its watch: asked again, they answer from memory."""

from __future__ import annotations

from dataclasses import dataclass

from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.job_watch import JobWatch
from cloudtrain.platforms.kubernetes.jobs import Place, Places
from cloudtrain.platforms.kubernetes.life.life import JobLife


@dataclass(frozen=True)
class OpenJob:
    """A job, its objects in memory, and its life."""

    place: Place
    watch: JobWatch
    life: JobLife

    @property
    def api(self) -> Api:
        return self.place.api


class OpenJobs:
    """All of them, by name."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._jobs: dict[str, OpenJob] = {}

    def find(self, job_name: str) -> OpenJob:
        """Raises JobNotFound, PlatformError."""
        place = self._places.find(job_name)
        known = self._jobs.get(job_name)
        if known and known.place == place:
            return known
        watch = JobWatch(place.api, place.kind, job_name)
        life = JobLife(place.api, place.kind, job_name, watch)
        self._jobs[job_name] = OpenJob(place, watch, life)
        return self._jobs[job_name]
