"""A job in a queue of Kueue: it waits for its quota, is evicted while it trains, and trains again."""

from __future__ import annotations

from pathlib import Path

from kube_fixtures import Namespace
from kube_kueue import QueuedJob, custom_kinds
from kube_training import WAITS_ONCE, estimator

from cloudtrain.contract import JobStatus
from cloudtrain.platforms.kubernetes.api.kinds import WORKLOAD

LACKS = (
    "couldn't assign flavors to pod set main: "
    "insufficient unused quota for nvidia.com/gpu in flavor a100, 2 more needed"
)
TAKEN = (
    "Preempted to accommodate a workload (UID: 4a0b, JobUID: 7c1d) due to prioritization in the ClusterQueue"
)


def test_an_evicted_job_waits_and_trains_again(kubernetes: Namespace, tmp_path: Path) -> None:
    kubernetes.claim("outputs")
    with custom_kinds(kubernetes, WORKLOAD):
        job = estimator(tmp_path, WAITS_ONCE, options={"queue": "team"}).fit(job_name="queued", wait=False)
        queued = QueuedJob(kubernetes, "queued", LACKS)
        kubernetes.wait_until(lambda: "2 nvidia.com/gpu" in job.describe().reason, "the missing quota")
        assert (job.status, kubernetes.pods) == (JobStatus.PENDING, [])
        queued.admit()
        for host in ("queued-0", "queued-1"):
            kubernetes.wait_for_line(host, "waits for its end")
        assert job.status == JobStatus.RUNNING
        queued.evict(TAKEN)
        kubernetes.wait_until(lambda: kubernetes.pods == [], "the end of the pods")
        taken = "Kueue gave its quota to a job of a higher priority in the same queue"
        kubernetes.wait_until(lambda: taken in job.describe().reason, "the reason of the eviction")
        assert job.status == JobStatus.PENDING
        queued.admit()
        job.wait(timeout=60)
        status = kubernetes.bench.get("jobs", kubernetes.name, "queued")["status"]
        assert (status["succeeded"], status.get("failed", 0)) == (2, 0)
