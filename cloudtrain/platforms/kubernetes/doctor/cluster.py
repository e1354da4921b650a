"""The cluster that the checks share, the pods that a request would make, and findings.

A denied question is not a failure: what the user may not see is unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from cloudtrain.errors import CloudtrainError, PlatformError
from cloudtrain.platforms.checks import Check, CheckStatus, Finding
from cloudtrain.platforms.kubernetes.api.errors import KubeError, KubeForbidden, KubeNotFound
from cloudtrain.platforms.kubernetes.api.kinds import Kind

if TYPE_CHECKING:
    from cloudtrain.platforms.kubernetes.api.client import Api

ok = partial(Finding, CheckStatus.OK)
warning = partial(Finding, CheckStatus.WARNING)
failed = partial(Finding, CheckStatus.FAILED)
unknown = partial(Finding, CheckStatus.UNKNOWN)


class Cluster:
    """The cluster of the checks. Threads share it: what several checks need is requested once."""

    def __init__(self, context: str | None, namespace: str | None) -> None:
        self._where = context, namespace
        self._lock = threading.Lock()
        self._known: dict[object, Any] = {}

    def _once(self, key: object, ask: Callable[[], Any]) -> Any:
        with self._lock:
            if key not in self._known:
                try:
                    self._known[key] = ask()
                except CloudtrainError as error:
                    self._known[key] = error
            found = self._known[key]
        if isinstance(found, CloudtrainError):
            raise found
        return found

    @property
    def api(self) -> Api:
        """Its API, which has answered. Raises PlatformError."""
        found: Api = self._once("api", self._connect)
        return found

    def _connect(self) -> Api:
        from cloudtrain.platforms.kubernetes.api.client import Api

        api = Api.connect(*self._where)
        api.server_version()
        return api

    def list(self, kind: Kind) -> list[dict[str, Any]]:
        """All objects of a kind in the namespace. Raises KubeError."""
        api = self.api
        found: list[dict[str, Any]] = self._once(kind.plural, lambda: api.list(kind)[0])
        return found

    def find(self, kind: Kind, name: str) -> dict[str, Any] | None:
        """One object; None if there is none. Raises KubeError."""
        try:
            return self.api.get(kind, name)
        except KubeNotFound:
            return None


def asked(cluster: Cluster, check: Callable[[Cluster], Finding]) -> Check:
    """``check`` of the cluster; unknown where the user may not look, or the cluster does not answer."""

    def run() -> Finding:
        try:
            _ = cluster.api
        except CloudtrainError:
            return unknown("the cluster cannot be asked")
        try:
            return check(cluster)
        except KubeError as error:
            return unknown(error.message, "" if isinstance(error, KubeForbidden) else error.hint)
        except PlatformError as error:
            return Finding.of(error)

    return run


@dataclass(frozen=True)
class PodSet:
    """Pods of one template."""

    count: int
    spec: Mapping[str, Any]
    labels: Mapping[str, str]

    @property
    def containers(self) -> list[Mapping[str, Any]]:
        return list(self.spec.get("containers") or [])


def pod_sets(main: Mapping[str, Any]) -> Iterator[PodSet]:
    """The pods of a main object of any kind."""
    spec = main["spec"]
    if main["kind"] == "Job":
        yield _pod_set(spec["template"], spec.get("parallelism", 1))
    elif main["kind"] == "JobSet":
        for replicated in spec["replicatedJobs"]:
            job = replicated["template"]["spec"]
            yield _pod_set(job["template"], replicated.get("replicas", 1) * job.get("parallelism", 1))
    elif main["kind"] == "MPIJob":
        for replicas in spec["mpiReplicaSpecs"].values():
            yield _pod_set(replicas["template"], replicas.get("replicas", 1))
    else:  # a TrainJob: the fields of the trainer, and those of our patch of its runtime
        trainer = spec["trainer"]
        patches = [
            patch["trainingRuntimeSpec"]["template"]["spec"] for patch in spec.get("runtimePatches") or []
        ]
        template = (
            patches[0]["replicatedJobs"][0]["template"]["spec"]["template"] if patches else {"spec": {}}
        )
        container = {
            **(template["spec"].get("containers") or [{}])[0],
            "image": trainer.get("image"),
            "env": trainer.get("env") or [],
            "resources": trainer.get("resourcesPerNode") or {},
        }
        pod = {**template, "spec": {**template["spec"], "containers": [container]}}
        yield _pod_set(pod, trainer.get("numNodes", 1))


def _pod_set(template: Mapping[str, Any], count: int) -> PodSet:
    return PodSet(count, template["spec"], (template.get("metadata") or {}).get("labels") or {})
