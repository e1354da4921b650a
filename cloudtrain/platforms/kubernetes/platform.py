"""`KubernetesPlatform`: runs jobs on Kubernetes clusters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cloudtrain.errors import NotSupported
from cloudtrain.platforms.base import JobDescription, Request
from cloudtrain.spec import TrainingJob

if TYPE_CHECKING:
    from cloudtrain.platforms.kubernetes.tickets import Ticket


class KubernetesPlatform:
    """Runs jobs as Jobs, JobSets, TrainJobs or MPIJobs of a Kubernetes cluster. The API's objects are the truth."""

    name = "kubernetes"

    def resolve(self, job: TrainingJob) -> TrainingJob:
        from cloudtrain.platforms.kubernetes.resolve import resolve

        return resolve(job)

    def render(self, job: TrainingJob) -> Request:
        from cloudtrain.platforms.kubernetes.render.render import render

        return render(job)

    def submit(self, request: Request) -> None:
        raise NotSupported("submit on kubernetes")

    def describe(self, job_name: str) -> JobDescription:
        raise NotSupported("describe on kubernetes")

    def logs(self, job_name: str, *, follow: bool = False) -> Iterator[str]:
        raise NotSupported("logs on kubernetes")

    def stop(self, job_name: str) -> None:
        raise NotSupported("stop on kubernetes")

    def list(self) -> Iterator[JobDescription]:
        raise NotSupported("list on kubernetes")

    def _ticket(self, job_name: str) -> Ticket:
        """Where the job is, as this client knows; else in the current context, as an Indexed Job."""
        from cloudtrain.platforms.kubernetes.tickets import Ticket, Tickets

        return Tickets().read(job_name) or Ticket()
