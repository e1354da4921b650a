"""The pods that a request would make: how many of which kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cloudtrain.platforms.base import Request


@dataclass(frozen=True)
class PodSet:
    """Pods of one template."""

    count: int
    spec: Mapping[str, Any]
    labels: Mapping[str, str]


def main_object(request: Request) -> dict[str, Any]:
    """The object that owns all others."""
    found: dict[str, Any] = request.body["objects"][0]
    return found


def pod_sets(request: Request) -> list[PodSet]:
    """The pods of the job, whatever its rendering."""
    return list(_pod_sets(main_object(request)))


def _pod_sets(main: Mapping[str, Any]) -> Iterator[PodSet]:
    spec = main["spec"]
    if main["kind"] == "Job":
        yield _of(spec["template"], spec.get("parallelism", 1))
    elif main["kind"] == "JobSet":
        for replicated in spec["replicatedJobs"]:
            job = replicated["template"]["spec"]
            yield _of(job["template"], replicated.get("replicas", 1) * job.get("parallelism", 1))
    elif main["kind"] == "MPIJob":
        for replicas in spec["mpiReplicaSpecs"].values():
            yield _of(replicas["template"], replicas.get("replicas", 1))
    elif main["kind"] == "TrainJob":
        yield _of_trainer(spec)


def _of(template: Mapping[str, Any], count: int) -> PodSet:
    return PodSet(count, template["spec"], (template.get("metadata") or {}).get("labels") or {})


def _of_trainer(spec: Mapping[str, Any]) -> PodSet:
    """The pods of a TrainJob: the fields of the trainer, and those of our patch of its runtime."""
    trainer = spec["trainer"]
    patches = [patch["trainingRuntimeSpec"]["template"]["spec"] for patch in spec.get("runtimePatches") or []]
    template = patches[0]["replicatedJobs"][0]["template"]["spec"]["template"] if patches else {"spec": {}}
    container = {
        "image": trainer.get("image"),
        "env": trainer.get("env") or [],
        "resources": trainer.get("resourcesPerNode") or {},
    }
    patched = (template["spec"].get("containers") or [{}])[0]
    pod = {**template["spec"], "containers": [{**patched, **container}]}
    return PodSet(trainer.get("numNodes", 1), pod, (template.get("metadata") or {}).get("labels") or {})
