"""All jobs of the namespaces that this client knows."""

from __future__ import annotations

import time
from collections.abc import Iterator

from cloudtrain.platforms.base import JobDescription
from cloudtrain.platforms.kubernetes.api.job_watch import Snapshot
from cloudtrain.platforms.kubernetes.jobs import Places
from cloudtrain.platforms.kubernetes.life.describe import describe, look_at
from cloudtrain.platforms.kubernetes.life.life import command_for


def list_jobs(places: Places) -> Iterator[JobDescription]:
    """The jobs, the newest first, from one list of each kind and one of pods. Raises PlatformError."""
    now = time.time()
    found = [
        describe(
            look_at(Snapshot(job.owner, job.pods), now),
            command=command_for(job.place.api, job.place.kind, job.owner),
        )
        for job in places.list()
    ]
    return iter(sorted(found, key=lambda job: job.submitted_at, reverse=True))
