"""Jobs in job folders that Slurm has in its queue: what a supervised platform says of them, and Slurm adds."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from cloudtrain.contract import FailureReport, JobStatus
from cloudtrain.observe import Summary
from cloudtrain.platforms.base import JobDescription, JobState
from cloudtrain.platforms.batch.cluster import Cluster
from cloudtrain.platforms.batch.cluster_platform import ClusterJobs
from cloudtrain.platforms.slurm.launcher import SlurmLauncher
from cloudtrain.platforms.slurm.life import JobLife
from cloudtrain.platforms.supervised import JobFiles, JobRecord


class QueuedJobs(ClusterJobs):
    """The jobs of one cluster, of which Slurm knows more than their folders.

    Args:
        life: what Slurm knows of them.
    """

    def __init__(self, cluster: Cluster, launcher: SlurmLauncher, life: JobLife) -> None:
        super().__init__(cluster, launcher)
        self._slurm = launcher
        self._life = life
        self._waited_for: Counter[str] = Counter()
        """By how many parts of this process."""

    def states(self, job_name: str) -> list[JobState]:
        job = self._existing(job_name)
        return self._life.states(self._settled(job), job)

    def lost(self, job: JobFiles) -> FailureReport:
        return self._life.lost(job)

    @contextlib.contextmanager
    def upkeep(self, job_name: str) -> Iterator[None]:
        """While the body waits for the job, put it into the queue again if it was interrupted, and is not there."""
        self._waited_for[job_name] += 1
        try:
            yield
        finally:
            self._waited_for[job_name] -= 1

    def _waiting(self, job: JobFiles, record: JobRecord) -> JobRecord | None:
        if not self._life.is_to_continue(job, record, job.request()):
            return None
        reason = f"interrupted, and not in the queue: to submit it again, run: cloudtrain wait {job.name}"
        if self._waited_for[job.name]:
            self._slurm.start_again(job)
            reason = "interrupted, and in the queue again"
        return replace(record, status=JobStatus.PENDING, pid=None, reason=reason)

    def _closed(self, job: JobFiles, record: JobRecord) -> JobRecord:
        return self._life.closed(super()._closed(job, record), job)

    def _settled(self, job: JobFiles) -> JobRecord:
        record = super()._settled(job)
        explained = self._life.explained(record, job)
        if explained is not record and explained.status.is_final:
            with contextlib.suppress(OSError):  # a full disk: the next call tries again
                job.write_record(explained)
        return explained

    def _description(
        self, job: JobFiles, record: JobRecord, summary: Summary, request: Mapping[str, Any]
    ) -> JobDescription:
        return self._life.described(super()._description(job, record, summary, request), record, job)
