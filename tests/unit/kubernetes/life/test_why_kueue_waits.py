"""The conditions of Kueue's Workloads, and the sentences that we make of them. The texts are from Kueue's sources."""

from __future__ import annotations

import pytest
from recorded_jobs import told, workload

from cloudtrain.platforms.kubernetes.life.reasons import why_queued


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        (
            "Pending",
            "couldn't assign flavors to pod set main: insufficient unused quota for memory in flavor default-flavor, "
            "1953125Ki more needed",
            "Kueue has too little free quota in the queue team-a: 1.9 GiB memory of flavor default-flavor more needed",
        ),
        (
            "Pending",
            "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor "
            "on-demand, 8 more needed, insufficient unused quota for nvidia.com/gpu in flavor spot, 4 more needed",
            "8 nvidia.com/gpu of flavor on-demand, 4 nvidia.com/gpu of flavor spot more needed",
        ),
        (
            "Pending",
            "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 3 more "
            "needed. Pending the preemption of 1 workload(s)",
            "Kueue preempts 1 other job for it",
        ),
        (
            "Pending",
            "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor a100, previously "
            "considered podsets requests (16) + current podset request (8) > maximum capacity (16)",
            "it requests more than the queue team-a of Kueue ever has of nvidia.com/gpu in flavor a100 (16)",
        ),
        ("Inadmissible", "LocalQueue team-a doesn't exist", "the queue team-a of Kueue does not exist"),
        (
            "Inadmissible",
            "ClusterQueue research is inactive",
            "Kueue reports: ClusterQueue research is inactive",
        ),
    ],
)
def test_reasons_for_missing_quota(reason, message, expected):
    found = workload(told("QuotaReserved", status="False", reason=reason, message=message))
    assert expected in str(why_queued(found, "team-a"))


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        ("InClusterQueue", "Kueue gave its quota to a job of a higher priority in the same queue"),
        ("InCohortReclamation", "Kueue gave its quota to a job of the queue that had lent it the quota"),
    ],
)
def test_why_it_was_preempted(cause, expected):
    found = workload(
        told(
            "QuotaReserved", status="False", reason="Pending", message="Preempted to accommodate a workload"
        ),
        told(
            "Evicted", reason="Preempted", message="Preempted to accommodate a workload (UID: 1, JobUID: 2)"
        ),
        told("Preempted", reason=cause, message="Preempted to accommodate a workload (UID: 1, JobUID: 2)"),
    )
    why = str(why_queued(found, "team-a"))
    assert expected in why
    assert "resumes from its last checkpoint" in why


def test_other_evictions():
    late = workload(
        told("Evicted", reason="PodsReadyTimeout", message="Exceeded the PodsReady timeout ns/job")
    )
    assert "its pods were not ready in time" in str(why_queued(late, "team-a"))
    stopped = workload(told("Evicted", reason="ClusterQueueStopped", message="The ClusterQueue is stopped"))
    assert "its queue of Kueue was stopped" in str(why_queued(stopped, "team-a"))


def test_checks_of_admission():
    found = workload(
        told("QuotaReserved", reason="QuotaReserved"),
        told("Admitted", status="False", reason="UnsatisfiedAdmissionChecks"),
        admissionChecks=[{"name": "nodes", "state": "Pending", "message": "1 node is provisioned"}],
    )
    assert "waits for a check: nodes (1 node is provisioned)" in str(why_queued(found, "team-a"))


def test_kueue_may_not_have_seen_it():
    assert "has not taken it into the queue team-a yet" in str(why_queued(None, "team-a"))
    assert str(why_queued(workload(), "team-a")) == "Kueue has not considered it yet"


def test_a_deactivated_job_shows_how_to_activate_it():
    found = workload(
        told(
            "Evicted",
            reason="DeactivatedDueToRequeuingLimitExceeded",
            message="The workload is deactivated due to exceeding the maximum number of re-queuing retries",
        ),
        active=False,
    )
    why = str(why_queued(found, "team-a"))
    assert "Kueue has deactivated it: exceeding the maximum number of re-queuing retries" in why
    assert "kubectl patch workload job-train-a1b2c" in why
