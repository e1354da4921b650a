"""The Slurm platform: jobs in the queues of clusters, each found by its ticket."""

from __future__ import annotations

import builtins
import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from cloudtrain.contract import FailureReport, JobStatus
from cloudtrain.observe import Summary
from cloudtrain.platforms.base import JobDescription, JobState, Request
from cloudtrain.platforms.batch.cluster import Cluster, open_cluster
from cloudtrain.platforms.batch.cluster_platform import (
    ClusterJobs,
    ClusterPlatform,
    Ticket,
    ticket_of,
    unless_queued,
)
from cloudtrain.platforms.batch.queue import queue_file
from cloudtrain.platforms.batch.shell import ConnectionLost
from cloudtrain.platforms.slurm.directives import SlurmOptions, limit_warnings
from cloudtrain.platforms.slurm.launcher import SlurmLauncher
from cloudtrain.platforms.slurm.life import JobLife
from cloudtrain.platforms.slurm.profile import FILE, with_profile
from cloudtrain.platforms.slurm.queue import Queue
from cloudtrain.platforms.slurm.render import check, render, render_array
from cloudtrain.platforms.slurm.time_limits import limit_of_cluster
from cloudtrain.platforms.supervised import JobFiles, JobRecord
from cloudtrain.spec import TrainingJob

if TYPE_CHECKING:
    from cloudtrain.platforms.checks import Check


class SlurmJobs(ClusterJobs):
    """The jobs on one cluster, in one folder. Slurm has more on them than their folders."""

    name = "slurm"

    def __init__(self, cluster: Cluster, poll_seconds: float) -> None:
        def queue(name: str) -> Queue:
            file = queue_file(self.name, cluster.login, name, os.environ.get("SLURM_CONF", ""))
            return Queue(cluster.shell, file, cluster=name, poll_seconds=poll_seconds)

        self._life = JobLife(cluster.shell, queue)
        self._slurm = SlurmLauncher(cluster, self._life)
        super().__init__(cluster, self._slurm)
        self.limit_of = cache(partial(limit_of_cluster, cluster.shell))  # once for all elements of an array
        self._waited_for: Counter[str] = Counter()
        """By how many parts of this process."""

    def render(self, job: TrainingJob) -> Request:
        return render(job, SlurmOptions.of(job), self.cluster)

    def submit_array(self, script: str, requests: Sequence[Request]) -> None:
        """Submit the elements of an array, in order. Raises PlatformError; then nothing is left."""
        made: list[str] = []
        with self._refusing(requests[0].job_name):
            try:
                drafts = []
                for request in requests:
                    with self._refusing(request.job_name):
                        drafts.append(self._draft(request))
                        made.append(drafts[-1].name)
                        self._slurm.place(drafts[-1], request)
                jobs = []
                for draft, request in zip(drafts, requests, strict=True):
                    with self._refusing(request.job_name):
                        jobs.append(draft.publish(request.job_name))
                        made.append(request.job_name)
            except BaseException:
                for name in made:
                    self._root.remove(name)
                raise
            try:
                self._slurm.start_array(jobs, script)
            except (ConnectionLost, KeyboardInterrupt):
                raise  # they may be in the queue
            except BaseException:
                for name in made:
                    self._root.remove(name)
                raise

    def states(self, job_name: str) -> builtins.list[JobState]:
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


class SlurmPlatform(ClusterPlatform[SlurmJobs]):
    """Runs jobs on clusters with Slurm."""

    name = "slurm"

    def resolve(self, job: TrainingJob) -> TrainingJob:
        job = with_profile(job)
        options = SlurmOptions.of(job)
        check(job)
        return self._resolve_on(self._jobs(_ticket(options)), job, lambda job: _ticket(SlurmOptions.of(job)))

    def render(self, job: TrainingJob) -> Request:
        return self._jobs(_ticket(SlurmOptions.of(job))).render(job)

    def job_warnings(self, job: TrainingJob) -> builtins.list[str]:
        options = SlurmOptions.of(job)
        return limit_warnings(job, options, self._jobs(_ticket(options)).limit_of)

    def render_array(self, name: str, jobs: Sequence[TrainingJob]) -> str:
        return render_array(name, jobs, self._jobs(_ticket(SlurmOptions.of(jobs[0]))).cluster)

    def submit_array(self, script: str, requests: Sequence[Request]) -> None:
        with unless_queued() as undo:
            for request in requests:
                ticket = self._file_ticket(request, undo)
            self._jobs(ticket).submit_array(script, requests)

    def upkeep(self, job_name: str) -> AbstractContextManager[None]:
        return self._of(job_name).upkeep(job_name)

    def preempt(self, job_name: str) -> None:
        self._of(job_name).preempt(job_name)

    def preflight(
        self, job: TrainingJob, request: Request | None, imports: Sequence[str]
    ) -> Mapping[str, Check]:
        from cloudtrain.platforms.slurm.doctor import checks

        job = with_profile(job)
        ticket = _ticket(SlurmOptions.of(job))
        return checks(job, request, lambda: self._jobs(ticket).cluster)

    def _configured(self) -> Iterator[Ticket]:
        yield from super()._configured()
        for name, options in FILE.read().profiles.items():
            yield ticket_of({**options, "profile": name})

    def _open(self, ticket: Ticket) -> SlurmJobs:
        cluster = open_cluster(self.name, ticket.login, ticket.folder or None, "sbatch")
        return SlurmJobs(cluster, ticket.poll_seconds)


def _ticket(options: SlurmOptions) -> Ticket:
    return Ticket(options.login or "", options.folder or "", options.profile or "", options.poll_seconds)
