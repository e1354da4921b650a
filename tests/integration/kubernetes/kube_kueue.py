"""Plays Kueue for one Job: its Workload, with the conditions of v1beta2, admission, and eviction.

Kueue suspends a Job to evict it, and resumes it to admit it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kube_client import path_of
from kube_fixtures import Namespace
from kube_objects import condition, owned_by

from cloudtrain.platforms.kubernetes.api.kinds import Kind

Object = dict[str, Any]


@contextmanager
def custom_kinds(kubernetes: Namespace, *kinds: Kind) -> Iterator[None]:
    """The server has these kinds, with any content. Other tests may ask which kinds it has."""
    plural = "customresourcedefinitions"
    new = [kind for kind in kinds if not kubernetes.bench.find(plural, None, kind.resource)]
    for kind in new:
        version = {
            "name": kind.version,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }
        names = {
            "kind": kind.kind,
            "plural": kind.plural,
            "singular": kind.kind.lower(),
            "listKind": f"{kind.kind}List",
        }
        spec = {"group": kind.group, "scope": "Namespaced", "names": names, "versions": [version]}
        kubernetes.bench.create(plural, None, {"metadata": {"name": kind.resource}, "spec": spec})
    try:
        for kind in kinds:
            address = kind.path(kubernetes.name)
            kubernetes.wait_until(
                lambda address=address: kubernetes.bench.raw("GET", address)[0] == 200, address
            )
        yield
    finally:
        for kind in new:
            kubernetes.bench.delete(plural, None, kind.resource)


class QueuedJob:
    """A suspended Job in the queue ``team``, with its Workload.

    Args:
        message: why the quota does not suffice yet.
    """

    def __init__(self, kubernetes: Namespace, name: str, message: str) -> None:
        self._bench = kubernetes.bench
        self._namespace = kubernetes.name
        self._name = name
        job = self._bench.get("jobs", kubernetes.name, name)
        assert job["spec"]["suspend"] is True
        self._workload = f"job-{name}-1a2b3"
        body = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": self._workload,
                "labels": {"kueue.x-k8s.io/job-uid": job["metadata"]["uid"]},
                "ownerReferences": owned_by({"apiVersion": "batch/v1", "kind": "Job", **job}),
            },
            "spec": {"queueName": "team", "active": True},
        }
        self._bench.call("POST", path_of("workloads", kubernetes.name), body)
        self._set(condition("QuotaReserved", False, "Pending", message))

    def admit(self) -> None:
        self._set(
            condition("QuotaReserved", True, "QuotaReserved", "Quota reserved in ClusterQueue all"),
            condition("Admitted", True, "Admitted", "The workload is admitted"),
        )
        self._bench.patch("jobs", self._namespace, self._name, {"spec": {"suspend": False}})

    def evict(self, message: str) -> None:
        """Take its quota for another workload."""
        self._set(
            condition("Evicted", True, "Preempted", message),
            condition("Preempted", True, "InClusterQueue", message),
            condition("QuotaReserved", False, "Pending", message),
            condition("Admitted", False, "NoReservation", "The workload has no reservation"),
        )
        self._bench.patch("jobs", self._namespace, self._name, {"spec": {"suspend": True}})

    def _set(self, *conditions: Object) -> None:
        self._bench.patch(
            "workloads", self._namespace, self._workload, {"status": {"conditions": list(conditions)}}
        )
