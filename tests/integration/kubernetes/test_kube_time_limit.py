"""The limits of a job on a cluster: ``max_run`` counts the time in which all hosts run, over all attempts; a job
that is lost over and over has to save something in between."""

from __future__ import annotations

import json
import time
from pathlib import Path

from kube_fixtures import Namespace
from kube_nodes import Node
from kube_training import estimator

from cloudtrain.contract import FailureClass, JobStatus

RUNS = """
import os, time
print("runs", flush=True)
while True:
    time.sleep(0.05)
"""


def test_time_in_which_a_job_waits_for_nodes_does_not_count(kubernetes: Namespace, tmp_path: Path) -> None:
    options = {"gpus": 1, "discard_outputs": True}
    job = estimator(tmp_path, RUNS, instance_count=1, options=options, output_path=None, max_run=2).fit(
        job_name="waits", wait=False
    )
    waits = "nodes have enough free nvidia.com/gpu"
    kubernetes.wait_until(lambda: waits in job.describe().reason, "it waits")
    due = time.time() + 4
    while time.time() < due:
        assert job.status == JobStatus.PENDING
        time.sleep(0.2)
    kubernetes.cluster.add_node(Node("gpu", {"cpu": "32", "memory": "128Gi", "nvidia.com/gpu": "1"}))
    job.wait(timeout=60)
    found = job.describe()
    assert (found.status, found.exit_code) == (JobStatus.STOPPED, 124)
    assert found.failure is not None and found.failure.failure_class == FailureClass.TIME_LIMIT
    assert found.failure.message == "max_run of 2 s is over"
    assert found.phases["train"] > 1


def test_the_time_of_all_attempts_counts(kubernetes: Namespace, tmp_path: Path) -> None:
    kept = kubernetes.claim("outputs") / "out/again/output/running-time.json"
    job = estimator(tmp_path, RUNS, max_run=20, max_retry_attempts=1).fit(job_name="again", wait=False)
    kubernetes.wait_until(lambda: kept.exists() and json.loads(kept.read_text())["ran"] > 8, "eight seconds")
    leader = kubernetes.pod("again-0")["metadata"]["uid"]
    job.preempt()
    kubernetes.wait_until(lambda: kubernetes.pod("again-0")["metadata"]["uid"] != leader, "another pod")
    job.wait(timeout=60)
    found = job.describe()
    assert found.failure is not None and found.failure.message == "max_run of 20 s is over"
    assert (found.status, found.attempt) == (JobStatus.STOPPED, 1)
    assert found.phases["train"] < 18, "the second attempt has the rest of the time only"
    assert json.loads(kept.read_text())["ran"] >= 20


def test_a_job_that_is_lost_over_and_over_without_a_checkpoint_ends(
    kubernetes: Namespace, tmp_path: Path
) -> None:
    kept = kubernetes.claim("outputs") / "out/lost/output/running-time.json"
    options = {"max_preemptions": 1}
    job = estimator(tmp_path, RUNS, options=options, instance_count=1, max_retry_attempts=1).fit(
        job_name="lost", wait=False
    )
    for lost in range(2):
        kubernetes.wait_until(
            lambda lost=lost: kept.exists() and json.loads(kept.read_text())["lost"] == lost, "an attempt"
        )
        job.preempt()
    job.wait(timeout=90)
    found = job.describe()
    assert found.failure is not None and found.failure.failure_class == FailureClass.PREEMPTED
    assert found.failure.message.startswith("hosts were lost 2 times in a row")
    assert (found.status, found.exit_code) == (JobStatus.INTERRUPTED, 124)
