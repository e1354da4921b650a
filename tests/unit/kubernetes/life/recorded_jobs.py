"""Objects of jobs as the API server has them: those of Kubernetes 1.33, JobSet 0.12, Trainer 2.3, MPI Operator 0.8."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cloudtrain.contract import FailureReport, JobStatus
from cloudtrain.contract.ending import Ending
from cloudtrain.platforms.kubernetes.life.objects import format_time, parse_time

Object = dict[str, Any]

CREATED = "2026-11-23T03:00:00Z"
BEGAN = parse_time(CREATED) or 0.0
IMAGE = "registry.example/train:1"
OUTPUT = "s3://bucket/out/train/output"


def at(seconds: float) -> str:
    """The time of the API, so many seconds after the job was created."""
    return format_time(BEGAN + seconds)


def told(kind: str, *, reason: str = "", message: str = "", status: str = "True", after: float = 0) -> Object:
    """A condition."""
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at(after),
        "lastProbeTime": at(after),
    }


def job(
    *conditions: Object,
    hosts: int = 2,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **metadata: Any,
) -> Object:
    """An Indexed Job."""
    names = [f"train-{index}" for index in range(hosts)]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(names, labels, annotations, metadata),
        "spec": {
            "completionMode": "Indexed",
            "completions": hosts,
            "parallelism": hosts,
            "backoffLimit": 0,
            **(spec or {}),
        },
        "status": {"startTime": at(1), "conditions": list(conditions), **(status or {})},
    }


def job_set(*conditions: Object, spec: Mapping[str, Any] | None = None, **metadata: Any) -> Object:
    """A JobSet with one replicated Job of two pods."""
    names = ["train-node-0-0", "train-node-0-1"]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _metadata(
            names, metadata.pop("labels", None), metadata.pop("annotations", None), metadata
        ),
        "spec": {
            "replicatedJobs": [
                {
                    "name": "node",
                    "replicas": 1,
                    "template": {"spec": {"completions": 2, "parallelism": 2}},
                }
            ],
            **(spec or {}),
        },
        "status": {"conditions": list(conditions), "restarts": 0},
    }


def train_job(*conditions: Object, spec: Mapping[str, Any] | None = None, **metadata: Any) -> Object:
    """A TrainJob with two nodes."""
    names = ["train-node-0-0", "train-node-0-1"]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": _metadata(
            names, metadata.pop("labels", None), metadata.pop("annotations", None), metadata
        ),
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2}, **(spec or {})},
        "status": {"conditions": list(conditions)},
    }


def mpi_job(*conditions: Object, run: Mapping[str, Any] | None = None, **metadata: Any) -> Object:
    """An MPIJob with a launcher and two workers."""
    names = ["train-launcher", "train-worker-0", "train-worker-1"]
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": _metadata(
            names, metadata.pop("labels", None), metadata.pop("annotations", None), metadata
        ),
        "spec": {
            "slotsPerWorker": 1,
            "runPolicy": {"cleanPodPolicy": "Running", "suspend": False, **(run or {})},
            "mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}},
        },
        "status": {"startTime": at(1), "conditions": list(conditions)},
    }


def _metadata(
    hosts: Sequence[str],
    labels: Mapping[str, str] | None,
    annotations: Mapping[str, str] | None,
    more: Mapping[str, Any],
) -> Object:
    settings = {
        "output_uri": OUTPUT,
        "checkpoint_uri": "s3://bucket/checkpoints",
        "compress_output": True,
        "git_commit": "abc123",
        "hosts": list(hosts),
    }
    return {
        "name": "train",
        "namespace": "ml",
        "uid": "owner",
        "creationTimestamp": CREATED,
        "labels": {"app.kubernetes.io/managed-by": "cloudtrain", "cloudtrain/job": "train", **(labels or {})},
        "annotations": {"cloudtrain/settings": json.dumps(settings), **(annotations or {})},
        **more,
    }


def pod(
    host: str = "train-0",
    phase: str = "Running",
    *,
    state: Mapping[str, Any] | None = None,
    node: str = "gpu-1",
    conditions: Sequence[Object] = (),
    uid: str = "",
    after: float = 2,
    reason: str = "",
    message: str = "",
    restarts: int = 0,
    image: str = IMAGE,
    **metadata: Any,
) -> Object:
    """A pod, with the state of its container."""
    status: Object = {"phase": phase, "conditions": list(conditions)}
    if reason or message:
        status |= {"reason": reason, "message": message}
    if state is None and phase == "Running":
        state = {"running": {"startedAt": at(after + 5)}}
    if state is not None:
        one = {"name": "train", "image": image, "state": dict(state), "restartCount": restarts}
        status["containerStatuses"] = [one]
    index = host.rpartition("-")[2]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{host}-{uid or 'x7k2p'}",
            "generateName": f"{host}-",
            "uid": uid or host,
            "creationTimestamp": at(after),
            "labels": {"cloudtrain/job": "train"},
            "annotations": {"batch.kubernetes.io/job-completion-index": index} if index.isdigit() else {},
            **metadata,
        },
        "spec": {
            "hostname": host,
            "containers": [
                {"name": "train", "image": image, "resources": {"limits": {"memory": "16Gi"}}},
                {"name": "istio-proxy", "image": "istio/proxyv2:1"},
            ],
            **({"nodeName": node} if node else {}),
        },
        "status": status,
    }


def ended(
    code: int,
    *,
    reason: str = "",
    message: str = "",
    after: float = 60,
    ending: Ending | None = None,
) -> Object:
    """The state of a container that has ended."""
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason or ("Completed" if code == 0 else "Error"),
            "message": ending.to_json() if ending else message,
            "startedAt": at(7),
            "finishedAt": at(after),
        }
    }


def failed_with(report: FailureReport, **more: Any) -> Ending:
    return Ending(JobStatus.FAILED, report, **more)


def event(
    reason: str,
    message: str,
    about: Object | None = None,
    *,
    kind: str = "Warning",
    after: float = 10,
    first: float | None = None,
) -> Object:
    """An event about an object; about the job's main object by default."""
    metadata = (about or job())["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"event-{reason}-{after}", "creationTimestamp": at(after)},
        "involvedObject": {
            "kind": (about or job())["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
        "type": kind,
        "reason": reason,
        "message": message,
        "firstTimestamp": at(after if first is None else first),
        "lastTimestamp": at(after),
        "count": 1,
    }


def waiting(reason: str, message: str = "") -> Object:
    """The state of a container that waits."""
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def unscheduled(message: str) -> Object:
    """The condition of a pod without a node."""
    return told("PodScheduled", status="False", reason="Unschedulable", message=message, after=2)


def workload(*conditions: Object, active: bool = True, **status: Any) -> Object:
    """Kueue's Workload of a job."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "job-train-a1b2c", "uid": "workload", "creationTimestamp": at(1)},
        "spec": {"queueName": "team-a", "active": active},
        "status": {"conditions": list(conditions), **status},
    }


@dataclass(frozen=True)
class Objects:
    """All objects of one job."""

    owner: Object | None
    pods: Sequence[Object] = ()
    events: Sequence[Object] = ()
    gone: Sequence[Object] = ()
    workload: Object | None = None
    unseen: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    deleted: Object | None = None

    def having(self, **changes: Any) -> Objects:
        return replace(self, **changes)
