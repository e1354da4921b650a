"""Spare hosts of a job on Kubernetes: nodes go away, and no other ones are free."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from kube_fixtures import Namespace
from kube_nodes import Node
from kube_training import OUTPUTS, estimator

from cloudtrain import Job
from cloudtrain.contract import JobStatus

SCRIPT = f"""
import os, time
from pathlib import Path

print("trains", os.environ["RANK"], os.environ["SM_HOSTS"], flush=True)
while not Path("{OUTPUTS}/enough").exists():
    time.sleep(0.05)
"""

ALONE = {"cpu": "20"}
"""So much of a node that no other pod fits on it."""


@pytest.fixture
def outputs(kubernetes: Namespace) -> Path:
    """Three nodes, each for one pod, and the claim of the outputs."""
    kubernetes.cluster.add_node(Node("node-3"))
    return kubernetes.claim("outputs")


def start(kubernetes: Namespace, folder: Path, name: str, **fields: Any) -> Job:
    """A job with two places and a spare host, which waits when this returns."""
    job = estimator(folder, SCRIPT, spare_hosts=1, host_timeout=5, options=ALONE, **fields).fit(
        job_name=name, wait=False
    )
    kubernetes.wait_for_line(f"{name}-1", f'trains 1 ["{name}-0","{name}-1"]', 120)
    kubernetes.wait_for_line(f"{name}-2", "is a spare host: it is ready", 60)
    return job


def lose(kubernetes: Namespace, hostname: str) -> None:
    """The node of a pod is lost, and the cluster notices."""
    node = kubernetes.pod(hostname)["spec"]["nodeName"]
    kubernetes.cluster.lose_node(node)
    kubernetes.cluster.give_up_node(node)


def end(kubernetes: Namespace, job: Job, outputs: Path) -> None:
    (outputs / "enough").touch()
    kubernetes.wait_until(lambda: job.status.is_final, "the end", 120)
    assert job.status == JobStatus.COMPLETED
    assert kubernetes.bench.get("jobs", kubernetes.name, job.name)["status"].get("failed", 0) == 0


@pytest.mark.soak  # its parts are in tests/integration/restarts
def test_a_spare_takes_the_place_of_a_pod_that_finds_no_node(
    kubernetes: Namespace, tmp_path: Path, outputs: Path
) -> None:
    job = start(kubernetes, tmp_path, "takes")
    spare, leader = kubernetes.pod("takes-2"), kubernetes.pod("takes-0")
    kubernetes.wait_until(
        lambda: job.describe().details.get("spare hosts") == "takes-2 waits", "the description"
    )
    lose(kubernetes, "takes-1")
    began = time.monotonic()
    kubernetes.wait_for_line("takes-2", 'trains 1 ["takes-0","takes-2"]', 120)
    print(f"the spare host trains after {time.monotonic() - began:.1f} s")
    now = [kubernetes.pod(name)["metadata"]["uid"] for name in ("takes-0", "takes-2")]
    assert now == [leader["metadata"]["uid"], spare["metadata"]["uid"]], "they restart in place"
    kubernetes.wait_until(
        lambda: job.describe().details.get("spare hosts") == "takes-2 takes the place of takes-1",
        "the description",
    )
    assert job.describe().status == JobStatus.RUNNING, "takes-1 waits for a node, which it need not have"
    kubernetes.cluster.add_node(Node("node-4"))
    kubernetes.wait_for_line("takes-1", "is a spare host: it is ready", 120)
    end(kubernetes, job, outputs)


@pytest.mark.soak  # its parts are in tests/integration/restarts
def test_a_spare_leaves_its_node_to_the_leader(kubernetes: Namespace, tmp_path: Path, outputs: Path) -> None:
    job = start(kubernetes, tmp_path, "leads", join_timeout=10)
    lose(kubernetes, "leads-0")
    kubernetes.wait_until(lambda: job.describe().status == JobStatus.PENDING, "a description", 60)
    kubernetes.wait_for_line("leads-0", 'trains 0 ["leads-0","leads-1"]', 240)
    assert kubernetes.pod("leads-2")["status"]["phase"] == "Pending"
    # its node comes back
    kubernetes.cluster.add_node(Node("node-4"))
    kubernetes.wait_for_line("leads-2", "is a spare host: it is ready", 120)
    end(kubernetes, job, outputs)


@pytest.mark.soak  # its parts are in tests/integration/restarts
def test_a_spare_pod_is_deleted(kubernetes: Namespace, tmp_path: Path, outputs: Path) -> None:
    job = start(kubernetes, tmp_path, "stays")
    first = kubernetes.pod("stays-2")["metadata"]
    kubernetes.bench.delete("pods", kubernetes.name, first["name"])
    kubernetes.wait_until(
        lambda: kubernetes.pod("stays-2")["metadata"]["uid"] != first["uid"], "another pod", 60
    )
    kubernetes.wait_for_line("stays-2", "is a spare host: it is ready", 120)
    assert kubernetes.log("stays-0").count("trains 0") == 1
    end(kubernetes, job, outputs)
