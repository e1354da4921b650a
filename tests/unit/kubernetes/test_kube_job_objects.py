"""The objects of one job: which events are about it, and what of an object is kept in memory."""

from __future__ import annotations

from typing import Any

from cloudtrain.platforms.kubernetes.life.job_watch import events_of, slim, slim_event

SINCE = "2026-11-23T10:00:00Z"


def event(kind: str, name: str, uid: str = "other", time: str = "2026-11-23T10:00:01Z") -> dict[str, Any]:
    about = {"kind": kind, "name": name, "uid": uid}
    return {"involvedObject": about, "lastTimestamp": time, "metadata": {"name": f"{name}.1"}}


def test_events_of_a_job() -> None:
    ours = [
        event("Job", "toy"),
        event("Job", "toy-node-0"),
        event("Pod", "toy-0-abcde"),
        event("Pod", "toy-12-x9f2z"),
        event("Pod", "toy-node-0-3-abcde"),
        event("Pod", "toy-launcher-abcde"),
        event("Pod", "toy-worker-1"),
        event("Workload", "job-toy-f3a10", uid="workload-uid"),
    ]
    others = [
        event("Job", "toy-2"),
        event("Pod", "toy-2-0-abcde"),
        event("Pod", "mytoy-0-abcde"),
        event("Job", "toybox"),
        event("Pod", "toy-0-abcde", time="2026-11-23T09:59:59Z"),  # an earlier job of this name
        event("Workload", "job-toy-2-f3a10"),
    ]
    assert list(events_of("toy", ours + others, {"workload-uid"}, SINCE)) == ours


def test_memory_of_an_object() -> None:
    container = {
        "name": "train",
        "image": "img",
        "env": [{"name": "TOKEN", "value": "sesame"}],
        "command": ["sh"],
        "volumeMounts": [],
    }
    spec = {"nodeName": "n1", "containers": [container], "volumes": [{"name": "a"}]}
    metadata = {
        "name": "toy",
        "managedFields": [{}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "1"},
    }
    kept = {"nodeName": "n1", "containers": [{"name": "train", "image": "img"}]}
    pod = {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}
    small = {"name": "toy", "annotations": {"mine": "1"}}
    assert slim(pod) == {"kind": "Pod", "metadata": small, "spec": kept, "status": {"phase": "Running"}}
    job = {"kind": "Job", "metadata": metadata, "spec": {"parallelism": 2, "template": {"spec": spec}}}
    assert slim(job)["spec"] == {"parallelism": 2, "template": {"spec": kept}}
    assert metadata["managedFields"] == [{}]


def test_keys_that_users_choose_are_kept() -> None:
    selector = {"env": "prod", "pool": "gpu"}
    pod = {"kind": "Pod", "metadata": {"labels": selector}, "spec": {"nodeSelector": selector}}
    assert slim(pod) == pod


def test_memory_of_an_event() -> None:
    found = {
        "metadata": {"name": "a", "uid": "1", "managedFields": [{}]},
        "reason": "Failed",
        "message": "m",
        "source": {"component": "kubelet"},
        "involvedObject": {"name": "toy"},
        "eventTime": None,
    }
    assert slim_event(found) == {
        "metadata": {"name": "a", "uid": "1"},
        "reason": "Failed",
        "message": "m",
        "involvedObject": {"name": "toy"},
    }
