"""Finds the jobs of this user: the cluster, the namespace and the kind of main object of each."""

from __future__ import annotations

import builtins
import contextlib
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudtrain.contract.documents import Fields
from cloudtrain.errors import JobNotFound, PlatformError
from cloudtrain.platforms.base import JobDescription
from cloudtrain.platforms.common.ticket_files import TicketFiles
from cloudtrain.platforms.kubernetes.api.errors import KubeForbidden, KubeNotFound
from cloudtrain.platforms.kubernetes.api.kinds import JOB, JOB_SET, MPI_JOB, POD, TRAIN_JOB, Kind
from cloudtrain.platforms.kubernetes.labels import ALL_JOBS, JOB as JOB_LABEL
from cloudtrain.platforms.kubernetes.life.objects import Snapshot, is_of

if TYPE_CHECKING:
    from cloudtrain.platforms.kubernetes.api.client import Api
    from cloudtrain.platforms.kubernetes.job import KubernetesJob

KINDS = {"job": JOB, "jobset": JOB_SET, "trainjob": TRAIN_JOB, "mpijob": MPI_JOB}
"""The kind of the main object of each rendering."""


@dataclass(frozen=True)
class Ticket:
    """The location of a job's main object."""

    context: str = ""
    """The context of the kubeconfig file; empty for the current one, and inside a cluster."""
    namespace: str = ""
    """Empty for the context's default namespace."""
    rendering: str = "job"
    """The kind of the main object: see `KubernetesOptions.rendering`."""
    uid: str = ""
    """The uid of the main object; empty until it was created."""


class Tickets(TicketFiles[Ticket]):
    """The tickets of all jobs."""

    def __init__(self) -> None:
        super().__init__("kubernetes")

    def _parse(self, given: Fields) -> Ticket:
        context, namespace = given.text("context", ""), given.text("namespace", "")
        return Ticket(context, namespace, given.text("rendering", "job"), given.text("uid", ""))

    def _place(self, ticket: Ticket) -> Hashable:
        return ticket.context, ticket.namespace


MOST = 100
"""The maximum number of open jobs: the least recently used ones are closed, with their watches."""


class Places:
    """The places of all jobs, the connections to their clusters, and the jobs that are open. Threads may share it."""

    def __init__(self) -> None:
        self.tickets = Tickets()
        self._apis: dict[tuple[str, str], Api] = {}
        self._lock = threading.Lock()
        self._open: OrderedDict[str, KubernetesJob] = OrderedDict()

    def job(self, job_name: str) -> KubernetesJob:
        """The job of this name, which is watched once for all callers. Raises JobNotFound, PlatformError."""
        with self._lock:
            found = self._open.get(job_name)
            if found:
                self._open.move_to_end(job_name)
                return found
        opened = self.find(job_name)
        with self._lock:
            found = self._open.setdefault(job_name, opened)
            while len(self._open) > MOST:
                self._open.popitem(last=False)[1].watch.close()
        return found

    def forget(self, job_name: str) -> None:
        """Close the job and delete its stored description, because the next job of this name is another one."""
        from cloudtrain.platforms.kubernetes.job import forget

        with self._lock:
            found = self._open.pop(job_name, None)
        forget(job_name)
        if found:
            found.watch.close()

    def api(self, context: str = "", namespace: str = "") -> Api:
        """The API of a namespace; by default, of the current context. Raises PlatformError."""
        from cloudtrain.platforms.kubernetes.api.client import Api

        key = (context, namespace)
        api = self._apis.get(key)
        if api is None:
            api = self._apis[key] = Api.connect(context or None, namespace or None)
            named = api.context, api.namespace  # it may have been opened under these names before
            api = self._apis.setdefault(named, api)
        return api

    def find(self, job_name: str) -> KubernetesJob:
        """A job, which may have been deleted since this client submitted it.

        A job that another client submitted is searched in all places of `list`, with each kind of object. A job whose
        submission was interrupted is searched in its namespace.

        Raises JobNotFound, PlatformError.
        """
        from cloudtrain.platforms.kubernetes.job import KubernetesJob

        ticket = self.tickets.read(job_name)
        own: KubernetesJob | None = None
        if ticket:
            api = self.api(ticket.context, ticket.namespace)
            own = KubernetesJob(api, KINDS.get(ticket.rendering, JOB), job_name, ticket.uid)
            if own.uid:
                return own
        errors: list[PlatformError] = []
        for api in [own.api] if own else self._all(errors):
            try:
                for kind in sorted(_served(api), key=lambda kind: own is not None and kind != own.kind):
                    with contextlib.suppress(KubeNotFound, *([] if kind == JOB else [KubeForbidden])):
                        found = api.get(kind, job_name)
                        if found["metadata"].get("labels", {}).get(JOB_LABEL) == job_name:
                            return KubernetesJob(api, kind, job_name)
            except PlatformError as error:
                errors.append(error)
        if own:
            return own
        if errors:
            raise errors[0]
        api = self.api()
        raise JobNotFound(
            f"there is no job {job_name} in the namespace {api.namespace} of context {api.context}",
            hint="A job that another machine submitted is found in the current context: choose it with "
            "kubectl config use-context CONTEXT, and its namespace with "
            "kubectl config set-context --current --namespace NAMESPACE",
        )

    def list(self) -> Iterator[JobDescription]:
        """The jobs of the current context, and of all namespaces to which this client submitted jobs, newest first.

        A cluster that does not respond is left out, unless none responds. Raises PlatformError.
        """
        errors: builtins.list[PlatformError] = []
        found: builtins.list[JobDescription] = []
        answered = False
        for api in self._all(errors):
            try:
                found += _listed(api)
                answered = True
            except PlatformError as error:
                errors.append(error)
        if errors and not answered:
            raise errors[0]
        return iter(sorted(found, key=lambda job: job.submitted_at, reverse=True))

    def _all(self, errors: builtins.list[PlatformError]) -> builtins.list[Api]:
        """The API of each place of `list`. Errors of places that cannot be used are appended to ``errors``."""
        apis = {}
        for ticket in [Ticket(), *self.tickets.all()]:
            try:
                api = self.api(ticket.context, ticket.namespace)
                apis[api.context, api.namespace] = api
            except PlatformError as error:
                errors.append(error)
        return [*apis.values()]


def _served(api: Api) -> Iterator[Kind]:
    return (kind for kind in KINDS.values() if kind == JOB or api.has(kind))


def _listed(api: Api) -> list[JobDescription]:
    """The jobs of one namespace, from one list of each kind and one list of pods. Raises PlatformError."""
    from cloudtrain.platforms.kubernetes.job import command_for
    from cloudtrain.platforms.kubernetes.life.describe import describe, look_at

    owners = []
    for kind in _served(api):
        try:
            found, _ = api.list(kind, labels=ALL_JOBS)
        except KubeForbidden:
            if kind == JOB:
                raise
            continue
        # a JobSet and its Jobs both have the labels: only the main object has no owner
        owners += [(kind, item) for item in found if not item["metadata"].get("ownerReferences")]
    pods: dict[str, list[dict[str, Any]]] = {}
    if owners:
        for pod in api.list(POD, labels=ALL_JOBS)[0]:
            pods.setdefault(pod["metadata"].get("labels", {}).get(JOB_LABEL, ""), []).append(pod)
    described = []
    for kind, item in owners:
        own = tuple(pod for pod in pods.get(item["metadata"]["name"], ()) if is_of(item, pod))
        look = look_at(Snapshot(item, own), api.now())
        described.append(describe(look, command=command_for(api, kind, item)))
    return described
