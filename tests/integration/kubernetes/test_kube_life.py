"""The life of jobs on a cluster: what is shown while they wait and run, and what is left when they have ended."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kube_fixtures import Namespace
from kube_kueue import custom_kinds
from kube_roles import RULES, grant

from cloudtrain.cli import cli
from cloudtrain.contract import FailureClass, JobStatus
from cloudtrain.errors import JobNotFound, PlatformError, TrainingFailed
from cloudtrain.job import Job
from cloudtrain.platforms import Preemption, States
from cloudtrain.platforms.kubernetes import KubernetesPlatform
from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.kinds import JOB, MPI_JOB, WORKLOAD
from cloudtrain.platforms.kubernetes.job import KubernetesJob, forget
from cloudtrain.platforms.kubernetes.life.objects import Snapshot
from cloudtrain.platforms.kubernetes.life.stop import stop
from cloudtrain.platforms.kubernetes.places import Ticket, Tickets
from cloudtrain.submission import prepare

LABELS = {"app.kubernetes.io/managed-by": "cloudtrain", "cloudtrain/job": "train"}
QUEUE = "kueue.x-k8s.io/queue-name"
SECONDS = 60
SCRIPT = """
import os, signal, sys, time

def leave(*_):
    print("saved", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, leave)
print("working", flush=True)
while True:
    time.sleep(0.05)
"""


def submit(folder: Path, name: str, **fields: Any) -> Job:
    script = folder / "train.py"
    script.write_text(SCRIPT)
    defaults = {
        "entry_point": str(script),
        "image_uri": "python:3.12",
        "platform": "kubernetes",
        "job_name": name,
        "instance_count": 2,
        "distribution": {"processes": {"processes_per_host": 1}},
    }
    options = {"discard_outputs": True, **fields.pop("platform_options", {})}
    job = prepare({**defaults, "platform_options": options, **fields}, defaults={}).submit()
    assert isinstance(job, Job)
    return job


def wait_for(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SECONDS
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def read_in_all_ways(kubernetes: Namespace, name: str) -> None:
    """Reads a job with each command that reads, twice, and checks that no request changes anything."""
    requests = kubernetes.proxy.requests
    requests.clear()
    platform = KubernetesPlatform()
    for _ in range(2):
        for arguments in (["describe", name], ["logs", name], ["metrics", name], ["list"]):
            CliRunner().invoke(cli, arguments)
        platform.describe(name)
        platform.states(name)
        list(platform.events(name))
    assert {request.partition(" ")[0] for request in requests} == {"GET"}


def described(name: str) -> str:
    """As a terminal shows it."""
    done = CliRunner().invoke(cli, ["describe", name])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_job_runs_is_evicted_starts_again_and_is_stopped(kubernetes: Namespace, tmp_path: Path) -> None:
    job = submit(tmp_path, "train")
    platform = job.platform
    assert isinstance(platform, States)
    assert isinstance(platform, Preemption)
    wait_for(lambda: job.status == JobStatus.RUNNING)
    kubernetes.wait_for_line("train-1", "working")
    shown = described("train")
    assert "status        Running" in shown
    assert "pods          2 of 2 running" in shown
    assert "train-0       Running on node node-" in shown
    assert (
        f"object        kubectl --context test --namespace {kubernetes.name} describe jobs.batch train"
        in shown
    )

    budget = {"metadata": {"name": "all"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": LABELS}}}
    budgets = f"/apis/policy/v1beta1/namespaces/{kubernetes.name}/poddisruptionbudgets"
    kubernetes.bench.call("POST", budgets, budget)
    protected = {"status": {"disruptionsAllowed": 0, "observedGeneration": 1}}
    kubernetes.bench.call("PATCH", f"{budgets}/all/status", protected, "application/merge-patch+json")
    with pytest.raises(
        PlatformError, match=r"pod train-1-\w+ may not be evicted: .*disruption budget"
    ) as refused:
        job.preempt()
    assert "kubectl get poddisruptionbudgets" in refused.value.hint
    kubernetes.bench.call("DELETE", f"{budgets}/all")
    job.preempt()
    wait_for(lambda: job.describe().attempt == 1 and job.status == JobStatus.RUNNING)
    kubernetes.wait_for_line("train-1", "working")
    assert [state.name for state in platform.states("train")][-2:] == ["Restarting", "Running"]

    job.stop()
    api = Api.connect()
    stopped = api.get(JOB, "train")["metadata"]["annotations"]["cloudtrain/stopped"]
    read_in_all_ways(kubernetes, "train")
    job.wait()
    assert job.status == JobStatus.STOPPED
    job.stop()  # does nothing
    found = api.get(JOB, "train")
    assert found["metadata"]["annotations"]["cloudtrain/stopped"] == stopped
    assert found["spec"]["activeDeadlineSeconds"] == 1
    description = job.describe()
    assert (description.reason, description.exit_code, description.failure) == (
        "stopped by the user",
        143,
        None,
    )
    assert [state.name for state in platform.states("train")][-1] == "Stopped"
    # its ending is kept with the job, for clients that did not see the pods
    later = KubernetesPlatform().describe("train")
    assert later.phases["train"] > 0
    assert later.goodput is not None
    assert later.started_at is not None
    with pytest.raises(PlatformError, match="job train has no running pods"):
        job.preempt()


def test_stacks_of_running_ranks(kubernetes: Namespace, tmp_path: Path) -> None:
    job = submit(tmp_path, "stacks")
    for pod in ("stacks-0", "stacks-1"):
        kubernetes.wait_for_line(pod, "working")
    first = job.stacks(timeout=60)
    assert sum(group.count for group in first.groups) == first.ranks == 2
    assert all("<module> (train.py:1" in group.stack for group in first.groups), first
    assert {host for group in first.groups for host in group.hosts} == {"stacks-0", "stacks-1"}
    assert job.stacks(native=True, timeout=90).native
    assert not any("stacks-taken" in line for line in job.platform.logs("stacks"))

    rules = [rule for rule in RULES if rule["resources"] != ["pods/exec"]]
    grant(kubernetes.bench, kubernetes.name, rules=rules)
    with pytest.raises(PlatformError, match="pods/exec") as refused:
        job.stacks()
    assert refused.value.hint == "Your role needs the verbs get and create on pods/exec."
    grant(kubernetes.bench, kubernetes.name)
    job.stop()
    wait_for(lambda: job.status.is_final)
    with pytest.raises(PlatformError, match="the leader of job stacks does not run"):
        job.stacks()


def test_a_job_that_cannot_start_is_given_up_if_a_client_waits(kubernetes: Namespace, tmp_path: Path) -> None:
    kubernetes.cluster.kubelet.images.missing.add("nope:1")
    job = submit(tmp_path, "nope", image_uri="nope:1")
    wait_for(lambda: "does not exist" in job.describe().reason)
    why = "image nope:1 does not exist (nope:1: not found). Check its name and its tag."
    assert described("nope").splitlines()[1] == f"status        Pending: {why}"
    for event in kubernetes.bench.list("events", kubernetes.name):
        if event["reason"] == "Failed":  # as if it had lasted for longer
            name = event["metadata"]["name"]
            kubernetes.bench.patch(
                "events", kubernetes.name, name, {"firstTimestamp": "2026-01-01T00:00:00Z"}
            )
    read_in_all_ways(kubernetes, "nope")
    assert KubernetesPlatform().describe("nope").status == JobStatus.PENDING
    with pytest.raises(TrainingFailed):
        job.wait()
    failure = KubernetesPlatform().describe("nope").failure
    assert failure is not None
    assert failure.message == "image nope:1 does not exist (nope:1: not found)"
    assert failure.hint == "Check its name and its tag."
    kubernetes.wait_until(lambda: not kubernetes.pods, "no pods that hold their nodes")


def test_a_job_that_is_deleted_while_a_client_waits_has_failed(kubernetes: Namespace, tmp_path: Path) -> None:
    job = submit(tmp_path, "train", platform_options={"gpus": 8})
    wait_for(lambda: "0/2 nodes have enough free nvidia.com/gpu" in job.describe().reason)
    assert "Pending" in [state.name for state in job.platform.states("train")]  # type: ignore[attr-defined]
    kubernetes.bench.delete("jobs", kubernetes.name, "train", propagationPolicy="Background")
    wait_for(lambda: job.status == JobStatus.FAILED)
    failure = job.failure
    assert failure is not None
    assert failure.failure_class == FailureClass.KILLED
    assert "its Job was deleted in Kubernetes while the job lived" in failure.message
    job.stop()
    # this client remembers it, as after its TTL
    listed = json.loads(CliRunner().invoke(cli, ["list", "--json"]).output)
    assert [(one["name"], one["status"]) for one in listed] == [("train", "Failed")]
    assert "object        its object is gone" in described("train")
    with pytest.raises(JobNotFound):
        KubernetesPlatform().logs("train")
    forget("train")
    with pytest.raises(JobNotFound, match="there is no Job train in namespace") as gone:
        KubernetesPlatform().describe("train")
    assert "platform_options.ttl" in gone.value.hint
    listed = json.loads(CliRunner().invoke(cli, ["list", "--json"]).output)
    assert [(one["name"], one["status"]) for one in listed] == [("train", "Unknown")]


def test_never_another_job_of_the_name_is_stopped(kubernetes: Namespace) -> None:
    api = Api.connect()
    seen = Snapshot(_new_job(api))
    api.delete(JOB, "train", foreground=False)
    wait_for(lambda: not api.list(JOB)[0])
    stop(api, JOB, seen)  # the job is gone
    _new_job(api)
    with pytest.raises(PlatformError, match="job train was replaced by another one of the same name"):
        stop(api, JOB, seen)
    assert seen.owner is not None
    Tickets().write("train", Ticket(api.context, api.namespace, "job", seen.owner["metadata"]["uid"]))
    for end in (KubernetesPlatform().stop, KubernetesPlatform().preempt):
        with pytest.raises(PlatformError, match="job train was replaced by another one of the same name"):
            end("train")
    found = api.get(JOB, "train")
    assert "cloudtrain/stopped" not in found["metadata"]["annotations"]
    assert "activeDeadlineSeconds" not in found["spec"]


def _new_job(api: Api) -> dict[str, Any]:
    container = {"name": "train", "image": "python:3.12", "command": ["sleep", "60"]}
    template = {"metadata": {"labels": LABELS}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": "train", "labels": LABELS}
    return api.create(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {"parallelism": 0, "template": template},
        }
    )


@pytest.fixture
def custom(kubernetes: Namespace) -> Iterator[None]:
    """The server has MPIJobs and Workloads, of any content."""
    with custom_kinds(kubernetes, MPI_JOB, WORKLOAD):
        yield


@pytest.mark.usefixtures("custom")
def test_kueue_does_not_start_a_stopped_job_again(kubernetes: Namespace) -> None:
    api = Api.connect()
    without = [rule for rule in RULES if rule["resources"] != ["workloads"]]
    seen = {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["get", "list", "watch"]}
    grant(kubernetes.bench, kubernetes.name, rules=[*without, seen])
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
    life = KubernetesJob(api, MPI_JOB, "train")
    found = life.describe()
    assert found.reason.startswith(
        "Kueue has too little free quota in the queue team-a: 8 cpu of flavor default"
    )
    with pytest.raises(PlatformError, match=r"patch.*workloads"):
        life.stop()
    assert "cloudtrain/stopped" not in (api.get(MPI_JOB, "train")["metadata"].get("annotations") or {})
    grant(kubernetes.bench, kubernetes.name)
    wait_for(lambda: api.allowed("patch", WORKLOAD))
    life.stop()
    assert api.get(WORKLOAD, "mpijob-train-1a2b3")["spec"]["active"] is False
    wait_for(lambda: life.describe().status == JobStatus.STOPPED)
