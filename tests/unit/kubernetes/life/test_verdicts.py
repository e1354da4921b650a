"""The outcome of a job, for all four kinds of main objects."""

from __future__ import annotations

import pytest
from recorded_jobs import (
    BEGAN,
    OUTPUT,
    Objects,
    at,
    ended,
    event,
    failed_with,
    job,
    job_set,
    mpi_job,
    pod,
    told,
    train_job,
    unscheduled,
    waiting,
    workload,
)

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.contract.ending import Ending
from cloudtrain.platforms.kubernetes.labels import FAILED, STOPPED, UNRELEASED
from cloudtrain.platforms.kubernetes.life.describe import describe, look_at

NOW = BEGAN + 300
STOPPED_AT = {STOPPED: at(100)}
RAISED = FailureReport(
    FailureClass.USER_ERROR,
    "no batches left",
    rank=3,
    host="train-1",
    exit_code=1,
    exception_type="ValueError",
    traceback="Traceback ...",
)
FULL = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


def described(objects: Objects, **more):
    return describe(look_at(objects, NOW, more.pop("last_lines", None)), **more)


@pytest.mark.parametrize(
    ("owner", "hosts"),
    [
        (job, ["train-0", "train-1"]),
        (job_set, ["train-node-0-0", "train-node-0-1"]),
        (train_job, ["train-node-0-0", "train-node-0-1"]),
        (mpi_job, ["train-launcher", "train-worker-0", "train-worker-1"]),
    ],
)
class TestEveryKind:
    def test_runs(self, owner, hosts):
        found = described(Objects(owner(), [pod(host) for host in hosts]))
        assert (found.status, found.reason, found.attempt) == (JobStatus.RUNNING, "", 0)
        assert [one.name for one in found.hosts] == hosts
        assert found.submitted_at == BEGAN
        assert found.started_at == BEGAN + 7
        assert found.exit_code is None
        assert found.checkpoint_uri == "s3://bucket/checkpoints"
        assert found.git_commit == "abc123"

    def test_waits(self, owner, hosts):
        pods = [pod(host, "Pending", node="", conditions=[unscheduled(FULL)]) for host in hosts]
        found = described(Objects(owner(), pods))
        assert found.status == JobStatus.PENDING
        assert found.reason.startswith("0/3 nodes have enough free nvidia.com/gpu")
        assert {one.state for one in found.hosts} == {"Pending"}

    def test_has_no_pods_yet(self, owner, hosts):
        found = described(Objects(owner()))
        assert found.status == JobStatus.PENDING
        assert "its pods are being created" in found.reason
        assert ("controller" in found.reason) == (owner is not job)

    def test_completes(self, owner, hosts):
        names = {job: "Complete", job_set: "Completed", train_job: "Complete", mpi_job: "Succeeded"}
        done = owner(told(names[owner], after=200))
        ending = Ending(
            JobStatus.COMPLETED,
            phases={"train": 100.0},
            metrics={"loss": 0.5},
            goodput={
                "goodput": 0.5,
                "wall": 10,
                "productive": 5,
                "lost": {"start": 5},
                "measured_by": "script",
            },
            warnings=("slow disk",),
            uploaded={"model": "s3://elsewhere/model.tar.gz"},
        )
        pods = [pod(host, "Succeeded", state=ended(0, ending=ending)) for host in hosts]
        found = described(Objects(done, pods))
        assert (found.status, found.exit_code, found.failure) == (JobStatus.COMPLETED, 0, None)
        assert found.ended_at == BEGAN + 200
        assert found.phases == {"train": 100.0}
        assert found.metrics == {"loss": 0.5}
        assert found.goodput and found.goodput.productive == 5
        assert found.warnings == ["slow disk"]
        assert found.model_data == f"{OUTPUT}/model.tar.gz"
        assert found.output_data is None

    def test_a_host_fails_with_the_cause_of_its_leader(self, owner, hosts):
        lost = FailureReport.host_lost(hosts[-1], "no heartbeat", 0.0)
        pods = [
            pod(hosts[0], "Failed", state=ended(1, after=62, ending=failed_with(RAISED))),
            *(pod(host, "Failed", state=ended(75, after=61, ending=failed_with(lost))) for host in hosts[1:]),
        ]
        found = described(Objects(owner(told("Failed", reason="PodFailurePolicy", after=63)), pods))
        assert found.status == JobStatus.FAILED
        assert found.failure == RAISED
        assert found.exit_code == 1
        assert found.hosts[0].state == "exited with code 1"

    def test_is_stopped(self, owner, hosts):
        ending = pod(hosts[0], deletionTimestamp=at(260))
        found = described(Objects(owner(annotations=STOPPED_AT), [ending]))
        assert (found.status, found.reason) == (JobStatus.STOPPING, "stopped by the user")
        lost = pod(hosts[0], deletionTimestamp=at(130))
        reason = described(Objects(owner(annotations=STOPPED_AT), [lost])).reason
        assert reason.startswith(f"stopped by the user; pod {hosts[0]}-x7k2p was deleted, but its node gpu-1")
        assert "kubectl delete pod" in reason
        assert found.hosts[0].state == "Terminating"
        if owner is job:
            over = job(told("Failed", reason="DeadlineExceeded", after=110), annotations=STOPPED_AT)
        elif owner is mpi_job:
            over = mpi_job(told("Suspended", after=110), run={"suspend": True}, annotations=STOPPED_AT)
        else:
            over = owner(told("Suspended", after=110), spec={"suspend": True}, annotations=STOPPED_AT)
        assert described(Objects(over, [ending])).status == JobStatus.STOPPING
        found = described(Objects(over))
        assert (found.status, found.exit_code, found.failure) == (JobStatus.STOPPED, 143, None)
        assert found.ended_at == BEGAN + 110

    def test_is_suspended_by_hand(self, owner, hosts):
        if owner is mpi_job:
            found = described(Objects(mpi_job(run={"suspend": True})))
        else:
            found = described(Objects(owner(spec={"suspend": True})))
        assert found.status == JobStatus.PENDING
        assert "it is suspended. Start it with: kubectl patch" in found.reason

    def test_was_never_released(self, owner, hosts):
        spec = {"run" if owner is mpi_job else "spec": {"suspend": True}}
        objects = Objects(owner(**spec, annotations={UNRELEASED: "true"}))
        began = describe(look_at(objects, BEGAN + 5))
        assert (began.status, began.reason) == (JobStatus.PENDING, "it is being submitted")
        found = described(objects)
        assert found.status == JobStatus.PENDING
        assert found.reason.startswith("its submission was interrupted. It holds no nodes.")


def test_a_pod_that_the_kernel_killed():
    killed = pod("train-1", "Failed", state=ended(137, reason="OOMKilled", after=58))
    lost = FailureReport.host_lost("train-1", "its connection closed", BEGAN + 60)
    leader = pod("train-0", "Failed", state=ended(75, after=61, ending=failed_with(lost)))
    found = described(Objects(job(told("Failed", reason="BackoffLimitExceeded")), [leader, killed]))
    assert found.failure and found.failure.failure_class == FailureClass.OUT_OF_MEMORY
    assert found.failure.host == "train-1"
    assert (
        "pod train-1-x7k2p was killed because it used more memory than its limit of 16Gi"
        in found.failure.message
    )
    assert found.exit_code == 137
    assert [one.state for one in found.hosts] == ["exited with code 75", "OOMKilled"]


def test_a_leader_that_the_kernel_killed():
    lost = FailureReport.host_lost("train-0", "its connection closed", BEGAN + 60)
    pods = [
        pod("train-0", "Failed", state=ended(137, reason="OOMKilled", after=58)),
        pod("train-1", "Failed", state=ended(75, after=61, ending=failed_with(lost))),
    ]
    found = described(Objects(job(told("Failed", reason="BackoffLimitExceeded")), pods))
    assert found.failure and found.failure.failure_class == FailureClass.OUT_OF_MEMORY
    assert found.failure.host == "train-0"


@pytest.mark.parametrize(
    ("reason", "message", "conditions", "kind", "status", "words"),
    [
        (
            "Evicted",
            "The node was low on resource: ephemeral-storage. Threshold quantity: 2722654248, available: 1600496Ki. "
            "Container train was using 40Ki, request is 0, has larger consumption of ephemeral-storage. ",
            [told("DisruptionTarget", reason="TerminationByKubelet")],
            FailureClass.DISK_FULL,
            JobStatus.FAILED,
            "was evicted from node gpu-1: The node was low on resource: ephemeral-storage",
        ),
        (
            "Evicted",
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
            [],
            FailureClass.DISK_FULL,
            JobStatus.FAILED,
            "exceeds the total limit of containers 1Gi",
        ),
        (
            "Evicted",
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 17348Ki.",
            [],
            FailureClass.OUT_OF_MEMORY,
            JobStatus.FAILED,
            "low on resource: memory",
        ),
        (
            "",
            "",
            [
                told(
                    "DisruptionTarget",
                    reason="PreemptionByScheduler",
                    message="default-scheduler: preempting to accommodate",
                )
            ],
            FailureClass.PREEMPTED,
            JobStatus.INTERRUPTED,
            "gave way to a pod of a higher priority",
        ),
        (
            "",
            "",
            [told("DisruptionTarget", reason="EvictionByEvictionAPI", message="Eviction API: evicting")],
            FailureClass.PREEMPTED,
            JobStatus.INTERRUPTED,
            "was evicted, as for the maintenance of a node",
        ),
        (
            "Terminated",
            "Pod was terminated in response to imminent node shutdown.",
            [told("DisruptionTarget", reason="TerminationByKubelet")],
            FailureClass.PREEMPTED,
            JobStatus.INTERRUPTED,
            "shut down: Pod was terminated in response to imminent node shutdown.",
        ),
        (
            "",
            "",
            [
                told(
                    "DisruptionTarget",
                    reason="DeletionByTaintManager",
                    message="Taint manager: deleting due to NoExecute taint",
                )
            ],
            FailureClass.HOST_LOST,
            JobStatus.FAILED,
            "the node of pod train-0-x7k2p was lost (gpu-1)",
        ),
        (
            "UnexpectedAdmissionError",
            "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 1, "
            "Available: 0, which is unexpected",
            [],
            FailureClass.GPU_SETUP,
            JobStatus.FAILED,
            "node gpu-1 did not accept pod train-0-x7k2p",
        ),
        (
            "OutOfcpu",
            "Node didn't have enough resource: cpu",
            [],
            FailureClass.PLATFORM,
            JobStatus.FAILED,
            "did not accept",
        ),
    ],
)
def test_what_kubernetes_does_to_pods(reason, message, conditions, kind, status, words):
    gone = pod("train-0", "Failed", reason=reason, message=message, conditions=conditions)
    found = described(Objects(job(told("Failed", reason="BackoffLimitExceeded"), hosts=1), [gone]))
    assert found.failure
    assert (found.failure.failure_class, found.status) == (kind, status)
    assert words in found.failure.message
    assert found.failure.host == "train-0"
    assert found.failure.hint


def test_an_image_without_a_shell():
    message = (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
        'unable to start container process: error during container init: exec: "/bin/sh": stat /bin/sh: no such '
        "file or directory: unknown"
    )
    gone = pod("train-0", "Failed", state=ended(128, reason="StartError", message=message))
    found = described(Objects(job(told("Failed", reason="PodFailurePolicy"), hosts=1), [gone]))
    assert found.failure and found.failure.message == "image registry.example/train:1 has no /bin/sh"
    assert "/bin/sh and Python 3.9" in found.failure.hint


def test_without_an_ending_the_last_lines_are_the_reason():
    lines = [
        "Traceback (most recent call last):",
        '  File "train.py", line 1, in <module>',
        "ValueError: no data",
    ]
    asked = []

    def last_lines(host):
        asked.append(host)
        return {host: lines}

    pods = [
        pod("train-0", "Failed", state=ended(75, after=59)),
        pod("train-1", "Failed", state=ended(1, after=60)),
    ]
    found = described(Objects(job(told("Failed", reason="PodFailurePolicy")), pods), last_lines=last_lines)
    assert asked == ["train-1"]
    assert found.failure and found.failure.exception_type == "ValueError"
    assert found.failure.host == "train-1"


def test_a_job_without_pods_shows_the_message_of_its_controller():
    owner = job_set(
        told("Failed", reason="ReachedMaxRestarts", message="jobset failed due to reaching max number")
    )
    found = described(Objects(owner))
    assert (
        found.failure
        and found.failure.message == "ReachedMaxRestarts: jobset failed due to reaching max number"
    )
    found = described(
        Objects(train_job(told("Failed", reason="TrainingRuntimeNotSupported", message="no such runtime")))
    )
    assert found.failure and "clustertrainingruntimes" in found.failure.hint


def test_the_time_limit():
    over = job(
        told("Failed", reason="DeadlineExceeded", after=100), hosts=1, spec={"activeDeadlineSeconds": 90}
    )
    found = described(Objects(over, [pod("train-0", "Failed", state=ended(143))]))
    assert found.status == JobStatus.STOPPED
    assert found.failure and found.failure.failure_class == FailureClass.TIME_LIMIT
    assert "at its time limit of 90 s" in found.failure.message
    assert found.exit_code == 143
    waits = pod("train-0", "Pending", node="", conditions=[unscheduled(FULL)])
    found = described(Objects(over, [waits]))
    assert found.failure
    assert "before it could start: 0/3 nodes have enough free nvidia.com/gpu" in found.failure.message


def test_the_time_limit_that_the_leader_enforces():
    over = FailureReport(FailureClass.TIME_LIMIT, "max_run of 90 s is over", exit_code=124)
    leader = pod("train-0", "Failed", state=ended(124, ending=Ending(JobStatus.STOPPED, over)))
    follower = pod("train-1", "Failed", state=ended(75, ending=Ending(JobStatus.STOPPED, over)))
    found = described(Objects(job(told("Failed", reason="PodFailurePolicy")), [leader, follower]))
    assert (found.status, found.exit_code, found.failure) == (JobStatus.STOPPED, 124, over)


def test_a_job_that_ended_itself_at_the_request_of_the_platform():
    state = ended(143, ending=Ending(JobStatus.INTERRUPTED))
    failed = job(told("Failed", reason="PodFailurePolicy"), hosts=1)
    found = described(Objects(failed, [pod("train-0", "Failed", state=state)]))
    assert (found.status, found.exit_code, found.reason) == (
        JobStatus.INTERRUPTED,
        143,
        "it was asked to end",
    )
    evicted = [told("DisruptionTarget", reason="EvictionByEvictionAPI", message="Eviction API: evicting")]
    found = described(Objects(failed, [pod("train-0", "Failed", state=state, conditions=evicted)]))
    assert found.failure
    assert (found.status, found.failure.failure_class) == (JobStatus.INTERRUPTED, FailureClass.PREEMPTED)
    late = job(told("Failed", reason="DeadlineExceeded"), hosts=1)
    assert described(Objects(late, [pod("train-0", "Failed", state=state)])).status == JobStatus.STOPPED


def test_a_leader_that_ends_because_a_follower_failed():
    """The failure policy ends the job with the follower's exit code, before the leader has noticed the loss."""
    leader = pod("train-0", "Failed", state=ended(75, ending=Ending(JobStatus.INTERRUPTED)))
    failed = job(told("Failed", reason="PodFailurePolicy"))
    killed = pod("train-1", "Failed", state=ended(137, reason="OOMKilled"))
    found = described(Objects(failed, [leader, killed]))
    assert found.failure
    assert (found.status, found.failure.failure_class) == (JobStatus.FAILED, FailureClass.OUT_OF_MEMORY)
    report = FailureReport(
        FailureClass.PLATFORM, "the pod cannot start: no S3", host="train-1", exit_code=1, time=NOW
    )
    state = ended(1, ending=Ending(JobStatus.FAILED, report))
    found = described(Objects(failed, [leader, pod("train-1", "Failed", state=state)]))
    assert (found.status, found.failure) == (JobStatus.FAILED, report)


def test_a_job_that_was_given_up():
    report = FailureReport(FailureClass.PLATFORM, "image nope:1 does not exist", "Check its name.")
    waits = pod("train-0", "Pending", state=waiting("ImagePullBackOff"), deletionTimestamp=at(200))
    found = described(Objects(job(annotations={FAILED: report.to_json()}), [waits]))
    assert (found.status, found.failure, found.exit_code) == (JobStatus.FAILED, report, 1)


def test_a_jobset_that_was_given_up_has_failed_when_its_jobs_have():
    """Its client may have been killed after the note: its pods may start, and the next client gives it up again."""
    note = {FAILED: FailureReport(FailureClass.PLATFORM, "image nope:1 does not exist").to_json()}
    waits = pod("train-node-0-0", "Pending", state=waiting("ImagePullBackOff"))
    assert described(Objects(job_set(annotations=note), [waits])).status == JobStatus.PENDING
    found = described(Objects(job_set(told("Failed"), annotations=note), [waits]))
    assert found.status == JobStatus.FAILED and found.failure.message == "image nope:1 does not exist"


def test_kueue():
    labels = {"kueue.x-k8s.io/queue-name": "team-a"}
    queued = job(spec={"suspend": True}, labels=labels)
    said = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 8 more needed"
    waits = workload(told("QuotaReserved", status="False", reason="Pending", message=said))
    found = described(Objects(queued, workload=waits))
    assert found.status == JobStatus.PENDING
    assert found.reason.startswith(
        "Kueue has too little free quota in the queue team-a: 8 cpu of flavor default"
    )
    assert found.details["queue"] == "team-a"
    off = workload(told("Evicted", reason="Deactivated", message="The workload is deactivated"), active=False)
    found = described(Objects(queued, workload=off))
    assert (found.status, found.exit_code) == (JobStatus.INTERRUPTED, 143)
    late = workload(
        told(
            "Evicted",
            reason="DeactivatedDueToMaximumExecutionTimeExceeded",
            message="The workload is deactivated due to exceeding the maximum execution time",
        ),
        active=False,
    )
    assert described(Objects(queued, workload=late)).status == JobStatus.STOPPED
    admitted = workload(told("QuotaReserved"), told("Admitted"))
    assert described(Objects(queued, workload=admitted)).reason == "Kueue has admitted it, and starts it"


def test_a_restart_names_why_the_last_attempt_ended():
    evicted = pod(
        "train-1",
        "Failed",
        uid="old",
        state=ended(143),
        conditions=[
            told("DisruptionTarget", reason="EvictionByEvictionAPI", message="Eviction API: evicting")
        ],
    )
    pods = [
        pod("train-0", "Failed", uid="zero", state=ended(75)),
        evicted,
        pod("train-0", uid="new", after=70),
        pod("train-1", "Pending", uid="newer", node="", after=70, conditions=[unscheduled(FULL)]),
    ]
    found = described(Objects(job(), pods))
    assert (found.status, found.attempt) == (JobStatus.PENDING, 1)
    assert found.reason.startswith("it restarts, because pod train-1-old on node gpu-1 was evicted")
    assert "train-1: 0/3 nodes have enough free nvidia.com/gpu" in found.reason
    assert [one.name for one in found.hosts] == ["train-0", "train-1"]
    assert found.started_at == BEGAN + 7


def test_a_job_does_not_run_while_kubernetes_pauses_before_a_restart():
    one = Objects(job(), [pod(f"train-{index}", "Failed", state=ended(75)) for index in (0, 1)])
    assert look_at(one, BEGAN + 62).verdict.status == JobStatus.RUNNING, "its controller has not decided yet"
    verdict = look_at(one, BEGAN + 70).verdict
    assert verdict.status == JobStatus.PENDING
    assert verdict.reason.startswith("its pods have ended, and Kubernetes pauses before")


def test_restarts_are_counted_by_the_pods_of_the_leader_even_if_deleted():
    events = [
        event("SuccessfulCreate", f"Created pod: train-{index}-{key}", kind="Normal", after=after)
        for after, key in ((2, "aaaaa"), (50, "bbbbb"))
        for index in (0, 1)
    ]
    found = described(Objects(job(), [pod("train-0", uid="ccccc"), pod("train-1", uid="ddddd")], events))
    assert found.attempt == 2
    assert (
        described(Objects(job(spec={"backoffLimit": 3}, status={"failed": 1}), [pod("train-0")])).attempt == 1
    )


def test_pods_are_described_with_their_nodes_restarts_and_reasons():
    pods = [
        pod("train-0", restarts=2, node="gpu-7"),
        pod("train-1", "Pending", node="", conditions=[unscheduled(FULL)]),
    ]
    found = described(Objects(job(), pods))
    assert [(one.state, one.message) for one in found.hosts] == [
        ("Running", "on node gpu-7, 2 restarts"),
        ("Pending", "0/3 nodes have enough free nvidia.com/gpu"),
    ]
    assert found.details["pods"] == "1 of 2 running"
    many = described(Objects(job(hosts=12), [pod(f"train-{index}") for index in range(12)]))
    assert [one.name for one in many.hosts] == [f"train-{index}" for index in range(12)]


def test_a_damaged_object_is_described_as_far_as_possible():
    owner = job(annotations={"cloudtrain/settings": "{", FAILED: "[]"})
    strange = {
        "metadata": {"name": "x", "creationTimestamp": 3},
        "spec": {"containers": "?"},
        "status": {"phase": 7},
    }
    found = described(Objects(owner, [strange], [{"message": 5}]))
    assert found.status == JobStatus.PENDING


def test_checks_that_the_client_cannot_make_are_reported():
    hidden = Objects(
        job(), unseen={"events": "alice may not list events in the namespace ml"}, problem="no answer"
    )
    assert described(hidden).warnings == [
        "why it waits may be unknown: alice may not list events in the namespace ml",
        "no answer",
    ]


def test_a_job_that_completed_after_all_was_not_given_up():
    """Its image arrived in the moment in which a client gave it up."""
    note = {FAILED: FailureReport(FailureClass.PLATFORM, "image nope:1 does not exist").to_json()}
    assert described(Objects(job(told("Complete", after=61), annotations=note))).status == JobStatus.COMPLETED
