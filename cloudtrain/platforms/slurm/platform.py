"""The Slurm platform: jobs in the queues of clusters, each found by its ticket."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from cloudtrain.platforms.base import HostOffer, Request
from cloudtrain.platforms.batch.cluster import open_cluster
from cloudtrain.platforms.batch.cluster_platform import ClusterPlatform, Ticket, ticket_of, unless_queued
from cloudtrain.platforms.slurm.directives import SlurmOptions, limit_warnings
from cloudtrain.platforms.slurm.jobs import SlurmJobs
from cloudtrain.platforms.slurm.profile import FILE, with_profile
from cloudtrain.platforms.slurm.render import check, render_array
from cloudtrain.spec import TrainingJob

if TYPE_CHECKING:
    from cloudtrain.platforms.checks import Check


class SlurmPlatform(ClusterPlatform[SlurmJobs]):
    """Runs jobs on clusters with Slurm."""

    name = "slurm"
    why_no_spare_hosts = why_no_fewer_hosts = ""
    """See `check_lost_hosts`."""

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

    def offers(self) -> builtins.list[HostOffer]:
        from cloudtrain.platforms.slurm.offers import partition_offers

        tickets = [*self._configured()] or [Ticket()]
        return [
            offer
            for ticket in tickets
            for offer in partition_offers(self._jobs(ticket).cluster.shell, ticket.profile)
        ]

    def _configured(self) -> Iterator[Ticket]:
        yield from super()._configured()
        for name, options in FILE.read().profiles.items():
            yield ticket_of({**options, "profile": name})

    def _open(self, ticket: Ticket) -> SlurmJobs:
        cluster = open_cluster(self.name, ticket.login, ticket.folder or None, "sbatch")
        return SlurmJobs(cluster, ticket.poll_seconds)


def _ticket(options: SlurmOptions) -> Ticket:
    return Ticket(options.login or "", options.folder or "", options.profile or "", options.poll_seconds)
