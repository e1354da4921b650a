"""Finds the jobs of this user: in which cluster, in which namespace, and as which kind of object each runs."""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudtrain.contract.documents import Fields
from cloudtrain.errors import JobNotFound, PlatformError
from cloudtrain.platforms.common.ticket_files import TicketFiles
from cloudtrain.platforms.kubernetes.api.errors import KubeForbidden, KubeNotFound
from cloudtrain.platforms.kubernetes.api.kinds import JOB, JOB_SET, MPI_JOB, POD, TRAIN_JOB, Kind
from cloudtrain.platforms.kubernetes.labels import ALL_JOBS, JOB as JOB_LABEL
from cloudtrain.platforms.kubernetes.life.objects import is_of

if TYPE_CHECKING:
    from cloudtrain.platforms.kubernetes.api.client import Api

KINDS = {"job": JOB, "jobset": JOB_SET, "trainjob": TRAIN_JOB, "mpijob": MPI_JOB}
"""The kind of the main object of each rendering."""


@dataclass(frozen=True)
class Ticket:
    """The way to a job's main object."""

    context: str = ""
    """The context of the kubeconfig file; empty for the current one, and inside a cluster."""
    namespace: str = ""
    """Empty for the context's own."""
    rendering: str = "job"
    """The kind of the main object: see `KubernetesOptions.rendering`."""
    uid: str = ""
    """Of the main object; empty before it was created."""


class Tickets(TicketFiles[Ticket]):
    """The tickets of all jobs."""

    def __init__(self) -> None:
        super().__init__("kubernetes")

    def _parse(self, given: Fields) -> Ticket:
        context, namespace = given.text("context", ""), given.text("namespace", "")
        return Ticket(context, namespace, given.text("rendering", "job"), given.text("uid", ""))

    def _place(self, ticket: Ticket) -> Hashable:
        return ticket.context, ticket.namespace


@dataclass(frozen=True)
class Place:
    """Where a job is: its main object is of ``kind``, in the namespace of ``api``."""

    api: Api
    kind: Kind
    uid: str = ""
    """Of the object that this client created; empty if it does not know."""


@dataclass(frozen=True)
class Listed:
    """A job in a list: its main object, and the pods that it has now."""

    place: Place
    owner: dict[str, Any]
    pods: tuple[dict[str, Any], ...]


class Places:
    """The places of all jobs, and the connections to their clusters. Threads may share it."""

    def __init__(self) -> None:
        self.tickets = Tickets()
        self._apis: dict[tuple[str, str], Api] = {}

    def api(self, context: str = "", namespace: str = "") -> Api:
        """The API of a namespace; by default, of the current context. Raises PlatformError."""
        from cloudtrain.platforms.kubernetes.api.client import Api

        key = (context, namespace)
        api = self._apis.get(key)
        if api is None:
            api = self._apis[key] = Api.connect(context or None, namespace or None)
            named = api.context, api.namespace  # it may have been found under these before
            api = self._apis.setdefault(named, api)
        return api

    def find(self, job_name: str) -> Place:
        """The place of a job, which may have been deleted since this client submitted it.

        A job that another client submitted is looked for where `list` looks, as each kind of object; one whose
        submission was interrupted, in its namespace.

        Raises JobNotFound, PlatformError.
        """
        ticket = self.tickets.read(job_name)
        own: Place | None = None
        if ticket:
            api = self.api(ticket.context, ticket.namespace)
            own = Place(api, KINDS.get(ticket.rendering, JOB), ticket.uid)
            if own.uid:
                return own
        errors: list[PlatformError] = []
        for api in [own.api] if own else self._all(errors):
            try:
                for kind in sorted(_served(api), key=lambda kind: own is not None and kind != own.kind):
                    with contextlib.suppress(KubeNotFound, *([] if kind == JOB else [KubeForbidden])):
                        found = api.get(kind, job_name)
                        if found["metadata"].get("labels", {}).get(JOB_LABEL) == job_name:
                            return Place(api, kind)
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

    def list(self) -> Iterator[Listed]:
        """The jobs of the current context, and of all namespaces to which this client submitted jobs.

        A cluster that does not answer is left out, unless it is the only one. Raises PlatformError.
        """
        errors: list[PlatformError] = []
        answered = False
        for api in self._all(errors):
            try:
                found = [*_listed(api)]
            except PlatformError as error:
                errors.append(error)
                continue
            answered = True
            yield from found
        if errors and not answered:
            raise errors[0]

    def _all(self, errors: builtins.list[PlatformError]) -> builtins.list[Api]:
        """The API of each place of `list`. Those that cannot be used add to ``errors``."""
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


def _listed(api: Api) -> Iterator[Listed]:
    """The jobs of one namespace. Raises PlatformError."""
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
    for kind, item in owners:
        own = (pod for pod in pods.get(item["metadata"]["name"], ()) if is_of(item, pod))
        yield Listed(Place(api, kind), item, tuple(own))
