"""`KubernetesPlatform`: runs jobs on Kubernetes clusters."""

from __future__ import annotations

import builtins
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudtrain.errors import InDoubt, JobExists, NotFound, PlatformError
from cloudtrain.observe import Summary
from cloudtrain.platforms.base import HostOffer, JobDescription, JobState, Request, Series
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import Progress, uri_scheme, uri_to_path

if TYPE_CHECKING:
    from cloudtrain.cost.so_far import Cost
    from cloudtrain.observe.stacks import StackDump
    from cloudtrain.platforms.checks import Check
    from cloudtrain.platforms.kubernetes.job import KubernetesJob
    from cloudtrain.platforms.kubernetes.places import Places, Ticket


class KubernetesPlatform:
    """Runs jobs as Jobs, JobSets, TrainJobs or MPIJobs of a Kubernetes cluster, whose objects are their only state."""

    name = "kubernetes"
    why_no_spare_hosts = ""
    """See `check_lost_hosts`: a Job can have them."""
    why_no_fewer_hosts = "Kubernetes starts new pods for those that are lost, and the job waits for them"
    sends_notifications = True
    """See `SupervisedPlatform.sends_notifications`: the leader of a job sends them."""

    def base_name(self, base: str) -> str:
        from cloudtrain.platforms.kubernetes.render.objects import LONGEST_BASE, nearest_name

        return nearest_name(base, LONGEST_BASE)

    def resolve(self, job: TrainingJob) -> TrainingJob:
        from cloudtrain.platforms.kubernetes.resolve import resolve

        return resolve(job, self._places.api)

    def render(self, job: TrainingJob) -> Request:
        from cloudtrain.platforms.kubernetes.render.render import render

        return render(job)

    def job_warnings(self, job: TrainingJob) -> builtins.list[str]:
        from cloudtrain.platforms.kubernetes.resolve import ignored_fields

        return ignored_fields(job)

    def preflight(
        self, job: TrainingJob, request: Request | None, imports: Sequence[str]
    ) -> Mapping[str, Check]:
        from cloudtrain.platforms.kubernetes.doctor.checks import checks

        return checks(job, request)

    def offers(self) -> builtins.list[HostOffer]:
        from cloudtrain.platforms.kubernetes.offers import node_offers

        return node_offers(self._places.api())

    def submit(self, request: Request) -> None:
        from cloudtrain.platforms.kubernetes.places import Ticket
        from cloudtrain.platforms.kubernetes.submit import submit

        body, tickets = request.body, self._places.tickets
        api = self._places.api(body["context"], body["namespace"])
        known = tickets.read(request.job_name)
        ticket = Ticket(api.context, api.namespace, body["rendering"])
        if known and replace(known, uid="") != ticket:
            self._require_end(request.job_name, known)
        urls = {}
        if body["files"]["delivery"] == "s3":
            from cloudtrain.platforms.kubernetes.submit import deliver

            urls = deliver(body)
        self._places.forget(request.job_name)
        # written first, so that a running job can always be found
        tickets.write(request.job_name, ticket)
        try:
            uid = submit(request, api, urls)
        except InDoubt:
            raise
        except BaseException:
            if tickets.read(request.job_name) == ticket:  # not that of another client's job of this name
                tickets.restore(request.job_name, known)
            raise
        with contextlib.suppress(OSError):  # the job runs, even if the disk is full
            tickets.write(request.job_name, replace(ticket, uid=uid))

    def _require_end(self, job_name: str, known: Ticket) -> None:
        """Raises JobExists while the name is that of a job elsewhere, because a name must lead to one job only."""
        try:
            if self._job(job_name).describe().status.is_final:
                return
        except PlatformError:
            return  # it was deleted, or its state is unknown
        raise JobExists(
            f"your job {job_name} runs or waits in the namespace {known.namespace} of context {known.context}, and "
            "a name leads to one job only",
            hint=f"Or stop it first: cloudtrain stop {job_name}",
        )

    def describe(self, job_name: str) -> JobDescription:
        return self._job(job_name).describe()

    def cost(self, description: JobDescription) -> Cost | None:
        """See `Prices`. From the start of the first pod to the end, including the time when hosts wait for nodes."""
        from cloudtrain.cost.so_far import cost_of

        if description.started_at is None:
            return None
        now = description.ended_at or description.looked_at or time.time()
        terms = self._job(description.name).cost_terms()
        return cost_of(terms, max(0.0, now - description.started_at), description.started_at)

    def states(self, job_name: str) -> builtins.list[JobState]:
        return self._job(job_name).states()

    def upkeep(self, job_name: str) -> AbstractContextManager[None]:
        return self._job(job_name).upkeep()

    def logs(self, job_name: str, *, follow: bool = False) -> Iterator[str]:
        from cloudtrain.platforms.kubernetes.logs import logs

        job = self._job(job_name, must_exist=True)
        return logs(job.api, job.watch, follow=follow)

    def events(self, job_name: str, *, follow: bool = False) -> Iterator[dict[str, Any]]:
        from cloudtrain.platforms.kubernetes.logs import events

        job = self._job(job_name, must_exist=True)
        return events(job.api, job.watch, follow=follow)

    def metrics(self, job_name: str) -> Series:
        from cloudtrain.platforms.kubernetes.logs import metrics

        job = self._job(job_name, must_exist=True)
        return metrics(job.api, job.watch)

    def summary(self, job_name: str) -> Summary:
        return self._job(job_name, must_exist=True).summary()

    def download(
        self, job_name: str, uri: str, folder: Path, progress: Progress | None = None
    ) -> Path | None:
        """See `Downloads.download`. Raises NotFound, StorageError, PlatformError."""
        if uri_scheme(uri) != "file":
            return None
        from cloudtrain.platforms.kubernetes.api.errors import KubeNotFound
        from cloudtrain.platforms.kubernetes.volume_download import download

        job = self._job(job_name)
        path = uri_to_path(uri).as_posix()
        try:
            return download(job.api, job.kind, job_name, path, folder, progress)
        except KubeNotFound:
            raise NotFound(
                f"{path} is on a volume of the cluster, and the job that mounted it is deleted",
                hint="Copy it with kubectl cp from a pod that mounts the volume.",
            ) from None

    def request_stacks(self, job_name: str, *, native: bool = False) -> None:
        self._job(job_name).request_stacks(native=native)

    def last_stacks(self, job_name: str) -> StackDump | None:
        return self._job(job_name).last_stacks()

    def stop(self, job_name: str) -> None:
        self._job(job_name).stop()

    def was_interrupted(self, job_name: str) -> bool:
        return self._job(job_name).was_interrupted()

    def withdraw(self, job_name: str) -> bool:
        was_interrupted = self._job(job_name).withdraw()
        if was_interrupted:
            self._places.forget(job_name)
        return was_interrupted

    def preempt(self, job_name: str) -> None:
        self._job(job_name).preempt()

    def list(self) -> Iterator[JobDescription]:
        return self._places.list()

    def _job(self, job_name: str, *, must_exist: bool = False) -> KubernetesJob:
        """Raises JobNotFound, with ``must_exist`` also for a deleted job that this client has seen; PlatformError."""
        job = self._places.job(job_name)
        if must_exist:
            job.require()
        return job

    @cached_property
    def _places(self) -> Places:
        from cloudtrain.platforms.kubernetes.places import Places

        return Places()
