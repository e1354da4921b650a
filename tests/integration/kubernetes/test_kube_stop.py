"""Stopping, preempting and giving up jobs, on a real API server: what the cluster is asked, and what is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kube_fixtures import Namespace
from kube_roles import RULES, grant

from cloudtrain.contract import FailureClass, JobStatus
from cloudtrain.contract.ending import Ending
from cloudtrain.errors import JobNotFound, PlatformError
from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.job_watch import JobWatch, Snapshot
from cloudtrain.platforms.kubernetes.api.kinds import JOB, MPI_JOB, POD, WORKLOAD
from cloudtrain.platforms.kubernetes.life.life import JobLife
from cloudtrain.platforms.kubernetes.life.stop import stop

LABELS = {"app.kubernetes.io/managed-by": "cloudtrain", "cloudtrain/job": "train"}
QUEUE = "kueue.x-k8s.io/queue-name"
IMAGE = "registry.example/train:1"
POD_SPEC = {"restartPolicy": "Never", "containers": [{"name": "train", "image": IMAGE}]}
SECONDS = 30


@pytest.fixture
def api(kubernetes: Namespace) -> Api:
    return Api.connect()


@pytest.fixture
def life(api: Api) -> Iterator[JobLife]:
    watch = JobWatch(api, JOB, "train")
    yield JobLife(api, JOB, "train", watch)
    watch.close()


def new_job(api: Api) -> dict[str, Any]:
    spec = {"completions": 1, "template": {"metadata": {"labels": LABELS}, "spec": POD_SPEC}}
    return api.create(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "train", "labels": LABELS},
            "spec": spec,
        }
    )


def new_pod(kubernetes: Namespace, name: str, status: dict[str, Any]) -> None:
    """A pod in a state that only a kubelet can report."""
    body = {
        "metadata": {
            "name": name,
            "labels": LABELS,
            "annotations": {"batch.kubernetes.io/job-completion-index": name[-1]},
        },
        "spec": {**POD_SPEC, "hostname": name, "nodeName": "n1"},
    }
    kubernetes.bench.create("pods", kubernetes.name, body)
    kubernetes.bench.patch("pods", kubernetes.name, name, {"status": status}, "status")


def container(**state: Any) -> dict[str, Any]:
    return {"name": "train", "image": IMAGE, "imageID": "", "ready": False, "restartCount": 0, "state": state}


def wait_for(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SECONDS
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_a_job_is_stopped_once_and_described_afterwards(
    kubernetes: Namespace, api: Api, life: JobLife
) -> None:
    new_job(api)
    running = {"running": {"startedAt": "2026-11-23T03:00:00Z"}}
    new_pod(kubernetes, "train-0", {"phase": "Running", "containerStatuses": [container(**running)]})
    assert life.describe().status == JobStatus.RUNNING
    assert (
        life.describe().place
        == f"kubectl --context test --namespace {kubernetes.name} describe jobs.batch train"
    )
    life.stop()
    found = api.get(JOB, "train")
    stopped = found["metadata"]["annotations"]["cloudtrain/stopped"]
    assert found["spec"]["activeDeadlineSeconds"] == 1
    wait_for(lambda: life.describe().status == JobStatus.STOPPING)
    time.sleep(1.1)
    life.stop()  # keeps the first time
    assert api.get(JOB, "train")["metadata"]["annotations"]["cloudtrain/stopped"] == stopped

    ending = Ending(JobStatus.STOPPED, metrics={"loss": 0.5})
    ended = {
        "exitCode": 143,
        "reason": "Error",
        "message": ending.to_json(),
        "startedAt": "2026-11-23T03:00:00Z",
        "finishedAt": "2026-11-23T03:01:00Z",
    }
    status = {"phase": "Failed", "containerStatuses": [container(terminated=ended)]}
    kubernetes.bench.patch("pods", kubernetes.name, "train-0", {"status": status}, "status")
    kubernetes.bench.delete("pods", kubernetes.name, "train-0", gracePeriodSeconds=0)
    failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "lastTransitionTime": stopped}
    kubernetes.bench.patch("jobs", kubernetes.name, "train", {"status": {"conditions": [failed]}}, "status")
    wait_for(lambda: life.describe().status == JobStatus.STOPPED)
    assert life.describe().exit_code == 143
    assert [state.name for state in life.states()][-1] == "Stopped"
    # its ending is kept with the job, for clients that did not see the pod
    later = JobLife(api, JOB, "train", JobWatch(api, JOB, "train"))
    wait_for(lambda: later.describe().metrics == {"loss": 0.5})
    life.stop()
    with pytest.raises(PlatformError, match="job train has no running pods"):
        life.preempt()


def test_never_another_job_of_the_name_is_stopped(api: Api) -> None:
    seen = Snapshot(new_job(api))
    api.delete(JOB, "train", foreground=False)
    wait_for(lambda: not api.list(JOB)[0])
    stop(api, JOB, seen)  # the job is gone
    other = new_job(api)
    with pytest.raises(PlatformError, match="job train was replaced by another one of the same name"):
        stop(api, JOB, seen)
    assert api.get(JOB, "train")["metadata"]["resourceVersion"] == other["metadata"]["resourceVersion"]


def test_a_job_that_is_deleted_while_a_client_waits_has_failed(api: Api, life: JobLife) -> None:
    with pytest.raises(JobNotFound, match="there is no Job train in namespace"):
        life.describe()
    new_job(api)
    wait_for(lambda: _describe(life) == JobStatus.PENDING)
    life.describe()
    api.delete(JOB, "train", foreground=False)
    wait_for(lambda: life.describe().status == JobStatus.FAILED)
    failure = life.describe().failure
    assert failure is not None
    assert failure.failure_class == FailureClass.KILLED
    assert "its Job was deleted in Kubernetes while the job lived" in failure.message
    assert life.states()[-1].name == "Failed"
    life.stop()
    new_job(api)
    wait_for(lambda: life.describe().status == JobStatus.PENDING)
    assert [state.name for state in life.states()] == ["Pending"]


def _describe(life: JobLife) -> JobStatus | None:
    try:
        return life.describe().status
    except JobNotFound:
        return None


def test_an_image_without_a_valid_name_fails_the_job_of_a_client_that_waits(
    kubernetes: Namespace, api: Api, life: JobLife
) -> None:
    new_job(api)
    refused = {"reason": "InvalidImageName", "message": "couldn't parse image name: invalid reference format"}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-23T03:00:00Z"}
    status = {
        "phase": "Pending",
        "conditions": [scheduled],
        "containerStatuses": [container(waiting=refused)],
    }
    new_pod(kubernetes, "train-0", status)
    alone = JobLife(api, JOB, "train", JobWatch(api, JOB, "train")).describe()
    assert alone.status == JobStatus.PENDING
    assert alone.reason == f"{IMAGE!r} is not the name of an image. Correct the image of the job."
    life.describe()
    wait_for(lambda: life.describe().status == JobStatus.FAILED)
    found = JobLife(api, JOB, "train", JobWatch(api, JOB, "train")).describe()
    assert found.status == JobStatus.FAILED
    assert found.failure is not None
    assert found.failure.message == f"{IMAGE!r} is not the name of an image"
    assert api.get(JOB, "train")["spec"]["activeDeadlineSeconds"] == 1


def test_pods_are_evicted_unless_a_budget_protects_them(
    kubernetes: Namespace, api: Api, life: JobLife
) -> None:
    new_job(api)
    running = {"running": {"startedAt": "2026-11-23T03:00:00Z"}}
    ready = {"type": "Ready", "status": "True"}
    for name in ("train-0", "train-1"):
        new_pod(
            kubernetes,
            name,
            {"phase": "Running", "conditions": [ready], "containerStatuses": [container(**running)]},
        )
    budget = {
        "metadata": {"name": "all"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"cloudtrain/job": "train"}}},
    }
    budgets = f"/apis/policy/v1beta1/namespaces/{kubernetes.name}/poddisruptionbudgets"
    kubernetes.bench.call("POST", budgets, budget)
    status = {"status": {"disruptionsAllowed": 0, "observedGeneration": 1}}
    kubernetes.bench.call("PATCH", f"{budgets}/all/status", status, "application/merge-patch+json")
    with pytest.raises(
        PlatformError, match=r"pod train-\d may not be evicted: .*disruption budget"
    ) as refused:
        life.preempt()
    assert "kubectl get poddisruptionbudgets" in refused.value.hint
    kubernetes.bench.call("DELETE", f"{budgets}/all")
    life.preempt()
    assert all(pod["metadata"].get("deletionTimestamp") for pod in api.list(POD)[0])


@pytest.fixture
def custom(kubernetes: Namespace) -> Iterator[None]:
    """The server has MPIJobs and Workloads, of any content. Other tests may ask which kinds it has."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    plural = "customresourcedefinitions"
    kinds = [kind for kind in (MPI_JOB, WORKLOAD) if not kubernetes.bench.find(plural, None, kind.resource)]
    for kind in kinds:
        version = {
            "name": kind.version,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
        }
        names = {
            "kind": kind.kind,
            "plural": kind.plural,
            "singular": kind.kind.lower(),
            "listKind": f"{kind.kind}List",
        }
        spec = {"group": kind.group, "scope": "Namespaced", "names": names, "versions": [version]}
        kubernetes.bench.create(plural, None, {"metadata": {"name": kind.resource}, "spec": spec})
    wait_for(lambda: all(Api.connect().has(kind) for kind in (MPI_JOB, WORKLOAD)))
    yield
    for kind in kinds:
        kubernetes.bench.delete(plural, None, kind.resource)


@pytest.mark.usefixtures("custom")
def test_kueue_does_not_start_a_stopped_job_again(kubernetes: Namespace, api: Api) -> None:
    owner = api.create(
        {
            "apiVersion": MPI_JOB.api_version,
            "kind": "MPIJob",
            "metadata": {"name": "train", "labels": {**LABELS, QUEUE: "team-a"}},
            "spec": {"runPolicy": {"suspend": True}, "mpiReplicaSpecs": {}},
        }
    )
    workload = {
        "apiVersion": WORKLOAD.api_version,
        "kind": "Workload",
        "metadata": {
            "name": "mpijob-train-1a2b3",
            "labels": {"kueue.x-k8s.io/job-uid": owner["metadata"]["uid"]},
        },
        "spec": {"queueName": "team-a", "active": True},
        "status": {
            "conditions": [
                {
                    "type": "QuotaReserved",
                    "status": "False",
                    "message": "couldn't assign flavors to pod set node: insufficient unused quota for cpu in flavor "
                    "default, 8 more needed",
                }
            ]
        },
    }
    kubernetes.bench.call("POST", WORKLOAD.path(kubernetes.name), workload)
    life = JobLife(api, MPI_JOB, "train", JobWatch(api, MPI_JOB, "train"))
    found = life.describe()
    assert found.reason.startswith(
        "Kueue has too little free quota in the queue team-a: 8 cpu of flavor default"
    )
    with pytest.raises(PlatformError, match=r"patch.*workloads"):
        life.stop()
    assert "cloudtrain/stopped" not in (api.get(MPI_JOB, "train")["metadata"].get("annotations") or {})
    allowed = [*RULES, {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["patch"]}]
    grant(kubernetes.bench, kubernetes.name, rules=allowed)
    wait_for(lambda: api.allowed("patch", WORKLOAD))
    life.stop()
    assert api.get(WORKLOAD, "mpijob-train-1a2b3")["spec"]["active"] is False
    wait_for(lambda: life.describe().status == JobStatus.STOPPED)
