"""A scheduler fits below the platform over job folders: its queue, its nodes' names, a folder elsewhere."""

from __future__ import annotations

import tarfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from batch_scheduler import BatchPlatform, ClusterRoot, Scheduler, Transport

from cloudtrain import Estimator, Job
from cloudtrain.contract import FailureClass, JobStatus
from cloudtrain.errors import JobExists, JobNotFound, PlatformError, TrainingFailed

NODES = ("node-b7", "node-c2")

SCRIPT = """
import json, os, signal, sys, time
from cloudtrain import environment

print("rank", os.environ["RANK"], "on", os.environ["SM_CURRENT_HOST"], os.environ.get("A_TOKEN"), flush=True)
print("loss=0.5", flush=True)
if "fail" in sys.argv[-1]:
    raise ValueError("as asked")
if "sleep" in sys.argv[-1]:
    time.sleep(600)
(environment.model_dir() / "model.txt").write_text(os.environ["RANK"])
(environment.model_dir() / os.environ["SM_CURRENT_HOST"]).write_text("a part")
"""


@dataclass
class Cluster:
    scheduler: Scheduler
    transport: Transport
    platform: BatchPlatform
    script: str

    def submit(self, name: str, what: str = "run", **fields: Any) -> Job:
        estimator = Estimator(
            self.script,
            platform=self.platform,
            instance_count=2,
            distribution={"processes": {"processes_per_host": 1}},
            hyperparameters={"what": what},
            metric_definitions=[{"Name": "loss", "Regex": r"loss=([0-9.]+)"}],
            environment={"A_TOKEN": "s3cret"},
            **{"disable_output_compression": True, **fields},
        )
        return estimator.fit(wait=False, job_name=name)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    (tmp_path / "train.py").write_text(SCRIPT)
    shared = tmp_path / "shared" / "jobs"
    scheduler, transport = Scheduler(NODES), Transport(shared)
    platform = BatchPlatform(scheduler, ClusterRoot(transport, str(shared)))
    return Cluster(scheduler, transport, platform, str(tmp_path / "train.py"))


def wait_until(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_job_waits_in_the_queue_and_runs_on_the_scheduler_s_nodes(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit("queued")
    assert job.describe().status == JobStatus.PENDING
    assert job.describe().started_at is None
    assert job.logs() == ""
    with pytest.raises(PlatformError, match="nothing to take away"):
        job.preempt()

    cluster.scheduler.release()
    described = job.wait().describe()
    assert described.status == JobStatus.COMPLETED
    assert described.place.startswith("cluster:")
    lines = job.logs().splitlines()
    for rank, node in enumerate(NODES):
        assert f"[rank {rank}] rank {rank} on {node} s3cret" in lines
    assert described.metrics == {"loss": 0.5}
    assert {point.value for point in cluster.platform.metrics("queued")["loss"]} == {0.5}
    assert (described.model_data or "").endswith("/queued/output/model")
    [model] = job.download(tmp_path)
    assert {path.name: path.read_text() for path in model.iterdir()} == {
        "model.txt": "0",
        **dict.fromkeys(NODES, "a part"),
    }
    assert "model/model.txt differs between hosts" in described.warnings[0]
    assert [found.name for found in cluster.platform.list()] == ["queued"]
    assert "s3cret" not in cluster.platform.request("queued").to_json()
    assert cluster.transport.messages > 0


def test_the_log_is_followed_from_the_queue_to_the_end(cluster: Cluster) -> None:
    job = cluster.submit("followed")
    threading.Timer(0.5, cluster.scheduler.release).start()
    lines = list(job.follow())
    assert sum("loss=0.5" in line for line in lines) == 2
    assert job.status == JobStatus.COMPLETED


def test_the_model_of_all_nodes_is_one_archive(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit("archived", disable_output_compression=False)
    cluster.scheduler.release()
    [model] = job.wait().download(tmp_path)
    with tarfile.open(model) as archive:
        assert sorted(archive.getnames()) == ["model.txt", *NODES]


def test_a_job_is_stopped_in_the_queue(cluster: Cluster) -> None:
    job = cluster.submit("never-started")
    job.stop()
    described = job.wait().describe()
    assert (described.status, described.reason) == (JobStatus.STOPPED, "stopped by the user")
    cluster.scheduler.release()
    assert job.logs() == ""


def test_a_running_job_is_stopped(cluster: Cluster) -> None:
    job = cluster.submit("stopped", "sleep")
    cluster.scheduler.release()
    wait_until(lambda: "loss" in job.logs())
    job.stop()
    assert job.wait().describe().status == JobStatus.STOPPED


def test_the_report_names_the_node(cluster: Cluster) -> None:
    job = cluster.submit("failing", "fail")
    cluster.scheduler.release()
    with pytest.raises(TrainingFailed) as caught:
        job.wait()
    report = caught.value.failure
    assert (report.exception_type, report.message) == ("ValueError", "as asked")
    assert report.host in NODES


def test_nodes_that_are_taken_away_are_a_preemption(cluster: Cluster) -> None:
    job = cluster.submit("lost", "sleep")
    cluster.scheduler.release()
    wait_until(lambda: "loss" in job.logs())
    cluster.scheduler.take_nodes_away(1)
    described = job.describe()
    assert described.status == JobStatus.INTERRUPTED
    assert described.failure
    assert described.failure.failure_class == FailureClass.PREEMPTED
    assert job.describe() == described


def test_nothing_is_left_of_a_job_that_the_scheduler_refuses(cluster: Cluster) -> None:
    cluster.submit("first")
    with pytest.raises(JobExists):
        cluster.submit("first")
    cluster.scheduler.nodes = NODES[:1]
    with pytest.raises(PlatformError, match="has 1 nodes"):
        cluster.submit("too-large")
    with pytest.raises(JobNotFound):
        cluster.platform.describe("too-large")
