"""`KubernetesPlatform`: runs jobs on Kubernetes clusters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cloudtrain.errors import NotSupported
from cloudtrain.platforms.base import JobDescription, Request
from cloudtrain.spec import TrainingJob

if TYPE_CHECKING:
    from cloudtrain.platforms.kubernetes.jobs import Places


class KubernetesPlatform:
    """Runs jobs as Jobs, JobSets, TrainJobs or MPIJobs of a Kubernetes cluster. The API's objects are the truth."""

    name = "kubernetes"

    def __init__(self) -> None:
        self._known: Places | None = None

    def resolve(self, job: TrainingJob) -> TrainingJob:
        from cloudtrain.platforms.kubernetes.resolve import resolve

        return resolve(job)

    def render(self, job: TrainingJob) -> Request:
        from cloudtrain.platforms.kubernetes.render.render import render

        return render(job)

    def submit(self, request: Request) -> None:
        from cloudtrain.platforms.kubernetes.submit import submit
        from cloudtrain.platforms.kubernetes.tickets import Ticket

        body, tickets = request.body, self._places.tickets
        api = self._places.api(body["context"], body["namespace"])
        known = tickets.read(request.job_name)
        # written first: a job that runs can always be found
        tickets.write(request.job_name, Ticket(api.context, api.namespace, body["rendering"]))
        try:
            submit(request, api)
        except BaseException:
            tickets.restore(request.job_name, known)
            raise

    def describe(self, job_name: str) -> JobDescription:
        raise NotSupported("describe on kubernetes")

    def logs(self, job_name: str, *, follow: bool = False) -> Iterator[str]:
        raise NotSupported("logs on kubernetes")

    def stop(self, job_name: str) -> None:
        raise NotSupported("stop on kubernetes")

    def list(self) -> Iterator[JobDescription]:
        raise NotSupported("list on kubernetes")

    @property
    def _places(self) -> Places:
        from cloudtrain.platforms.kubernetes.jobs import Places

        if self._known is None:
            self._known = Places()
        return self._known
