"""The states of a job that a client waits for, and the patches that stop it."""

from __future__ import annotations

import pytest
from recorded_jobs import (
    BEGAN,
    Objects,
    at,
    ended,
    job,
    job_set,
    mpi_job,
    pod,
    told,
    train_job,
    unscheduled,
)

from cloudtrain.contract import JobStatus
from cloudtrain.contract.ending import Ending
from cloudtrain.platforms.base import JobState
from cloudtrain.platforms.kubernetes.labels import ENDING, STOPPED
from cloudtrain.platforms.kubernetes.life.describe import StateLog, describe, look_at
from cloudtrain.platforms.kubernetes.life.stop import child_jobs, stop_patch

FULL = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
TAINTED = "0/3 nodes are available: 3 node(s) had untolerated taint(s)."
NOTE = {STOPPED: at(100)}


def waits(message: str, host: str = "train-0", **more):
    return pod(host, "Pending", node="", conditions=[unscheduled(message)], **more)


def test_each_change_is_one_state():
    log = StateLog()
    one = job(hosts=1)
    first = log.update(look_at(Objects(one), BEGAN + 1))
    assert first == [JobState(BEGAN, "Pending", "its pods are being created")]
    log.update(look_at(Objects(one, [waits(FULL)]), BEGAN + 5))
    log.update(look_at(Objects(one, [waits(FULL)]), BEGAN + 6))
    log.update(look_at(Objects(one, [waits(TAINTED)]), BEGAN + 7))
    log.update(look_at(Objects(one, [pod("train-0", after=10)]), BEGAN + 20))
    evicted = [told("DisruptionTarget", reason="EvictionByEvictionAPI", message="Eviction API: evicting")]
    gone = pod("train-0", "Failed", state=ended(143), conditions=evicted, deletionTimestamp=at(30))
    log.update(look_at(Objects(one, [waits(FULL, uid="new", after=40)], gone=[gone]), BEGAN + 41))
    log.update(look_at(Objects(one, [pod("train-0", uid="new", after=40)], gone=[gone]), BEGAN + 50))
    done = job(told("Complete", after=80), hosts=1)
    over = [pod("train-0", "Succeeded", state=ended(0), uid="new", after=40)]
    states = log.update(look_at(Objects(done, over), BEGAN + 81))
    assert [state.name for state in states] == [
        "Pending",
        "Pending",
        "Pending",
        "Running",
        "Restarting",
        "Running",
        "Completed",
    ]
    assert states[1].message.startswith("0/3 nodes have enough free nvidia.com/gpu")
    assert states[3] == JobState(BEGAN + 15, "Running", "on node gpu-1")
    assert states[4].message.startswith("it restarts, because pod train-0-x7k2p on node gpu-1 was evicted")
    assert states[-1].time == BEGAN + 80
    assert [state.time for state in states] == sorted(state.time for state in states)


def test_a_host_that_starts_before_the_others_is_not_a_restart():
    log = StateLog()
    both = [pod("train-0"), waits(FULL, "train-1")]
    log.update(look_at(Objects(job(hosts=2), [waits(FULL), waits(FULL, "train-1")]), BEGAN + 1))
    log.update(look_at(Objects(job(hosts=2), both), BEGAN + 6))
    states = log.update(look_at(Objects(job(hosts=2), [pod("train-0"), pod("train-1")]), BEGAN + 9))
    assert {state.name for state in states[:-1]} == {"Pending"}
    assert states[-1].name == "Running"
    left = [pod("train-0", "Failed", state=ended(75)), waits(FULL, "train-1")]
    [*_, state] = StateLog().update(look_at(Objects(job(hosts=2), left), BEGAN + 30))
    assert state.name == "Restarting"


def test_a_client_that_attaches_later_sees_earlier_states():
    running = [pod("train-0"), pod("train-1", node="gpu-2")]
    states = StateLog().update(look_at(Objects(job(), running), BEGAN + 100))
    assert states == [JobState(BEGAN, "Pending"), JobState(BEGAN + 7, "Running", "on nodes gpu-1, gpu-2")]
    failed = [pod("train-0", "Failed", state=ended(3, after=60))]
    states = StateLog().update(look_at(Objects(job(told("Failed", after=61), hosts=1), failed), BEGAN + 100))
    assert [(state.time - BEGAN, state.name) for state in states] == [
        (0, "Pending"),
        (7, "Running"),
        (61, "Failed"),
    ]
    assert "exited with code 3" in states[-1].message


def test_the_number_of_states_is_bounded():
    log = StateLog()
    for number in range(500):
        log.update(look_at(Objects(job(hosts=1), [waits(f"scheduler {number}")]), BEGAN + number))
    assert len(log.states) <= 201


@pytest.mark.parametrize(
    ("owner", "suspend", "patched", "jobs"),
    [
        (job(), False, {"activeDeadlineSeconds": 1}, []),
        (job(), True, {"suspend": True}, []),
        (job_set(), False, None, ["train-node-0"]),
        (job_set(), True, {"suspend": True}, ["train-node-0"]),
        (train_job(), True, {"suspend": True}, []),
        (mpi_job(), True, {"runPolicy": {"suspend": True}}, []),
    ],
)
def test_a_stop_leaves_the_object_and_meets_only_that_one(owner, suspend, patched, jobs):
    patch = stop_patch(owner, NOTE, suspend=suspend)
    assert patch["metadata"] == {"uid": "owner", "annotations": NOTE}
    assert patch.get("spec") == patched
    assert child_jobs(owner) == jobs


def test_a_stopped_job_is_described_by_deleted_pods():
    ending = Ending(JobStatus.STOPPED, metrics={"loss": 0.25}, uploaded={"output": "s3://b/output.tar.gz"})
    over = job(told("Failed", reason="DeadlineExceeded", after=120), annotations=NOTE)
    gone = [
        pod("train-0", "Failed", state=ended(143, ending=ending)),
        pod("train-1", "Failed", state=ended(143)),
    ]
    kept = job(
        told("Failed", reason="DeadlineExceeded", after=120), annotations={**NOTE, ENDING: ending.to_json()}
    )
    for objects in (Objects(over, gone=gone), Objects(kept)):
        found = describe(look_at(objects, BEGAN + 300))
        assert (found.status, found.reason, found.attempt) == (JobStatus.STOPPED, "stopped by the user", 0)
        assert found.metrics == {"loss": 0.25}
        assert found.output_data == "s3://bucket/out/train/output/output.tar.gz"
    assert [host.name for host in describe(look_at(Objects(over, gone=gone), 0)).hosts] == [
        "train-0",
        "train-1",
    ]


def test_a_pod_that_was_deleted_by_hand_is_why_a_job_starts_again():
    gone = pod("train-0", "Running", deletionTimestamp=at(30), uid="old")
    found = describe(
        look_at(Objects(job(hosts=1), [waits(FULL, uid="new", after=31)], gone=[gone]), BEGAN + 40)
    )
    assert found.reason.startswith("it restarts, because pod train-0-old was deleted. 0/3 nodes")
    assert found.attempt == 1


def test_a_deleted_pod_does_not_count_as_running():
    gone = pod("train-1", "Running", deletionTimestamp=at(30))
    found = describe(look_at(Objects(job(), [pod("train-0")], gone=[gone]), BEGAN + 40))
    assert (found.status, [host.name for host in found.hosts]) == (JobStatus.PENDING, ["train-0"])
