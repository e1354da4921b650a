"""How jobs on Kubernetes end: scripts that fail, memory, images, quotas, rights, and pods and nodes that go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kube_fixtures import Namespace
from kube_training import WAITS_ONCE, estimator, exit_codes

from cloudtrain.contract import FailureClass, JobStatus
from cloudtrain.errors import PlatformError, TrainingFailed

RAISES = """
import os

if os.environ["RANK"] == "1":
    raise ValueError("it broke")
import time
time.sleep(600)
"""


def test_a_script_raises(kubernetes: Namespace, tmp_path: Path) -> None:
    kubernetes.claim("outputs")
    with pytest.raises(TrainingFailed, match="ValueError: it broke") as raised:
        estimator(tmp_path, RAISES).fit(job_name="raises")
    failure = raised.value.failure
    assert (failure.failure_class, failure.host, failure.rank) == (FailureClass.USER_ERROR, "raises-1", 1)
    assert "line 5" in failure.traceback
    kubernetes.wait_until(
        lambda: set(exit_codes(kubernetes)) == {"raises-0", "raises-1"}, "the end of both pods"
    )
    assert exit_codes(kubernetes) == {"raises-0": 1, "raises-1": 75}
    reasons: dict[str, str] = {}

    def has_failed() -> bool:
        job = kubernetes.bench.get("jobs", kubernetes.name, "raises")
        reasons.update({one["type"]: one["reason"] for one in job["status"]["conditions"]})
        return "Failed" in reasons

    kubernetes.wait_until(has_failed, "the end of the Job")
    assert (reasons["FailureTarget"], reasons["Failed"]) == ("PodFailurePolicy", "PodFailurePolicy")


def test_a_container_uses_too_much_memory(kubernetes: Namespace, tmp_path: Path) -> None:
    kubernetes.claim("outputs")
    job = estimator(tmp_path, WAITS_ONCE, host_timeout=5).fit(job_name="memory", wait=False)
    kubernetes.wait_for_line("memory-1", "waits for its end")
    kubernetes.cluster.kill_for_memory(kubernetes.name, kubernetes.pod("memory-1")["metadata"]["name"])
    kubernetes.wait_until(lambda: job.status.is_final, "the end")
    assert job.failure
    assert (job.failure.failure_class, job.failure.host) == (FailureClass.OUT_OF_MEMORY, "memory-1")


def test_a_job_waits_with_a_reason(kubernetes: Namespace, tmp_path: Path) -> None:
    """For an image that no registry has, for a GPU, and for the namespace's quota. Then it is stopped."""
    kubernetes.cluster.kubelet.images.missing.add("no/such:image")
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"limits.memory": "1Gi"}}}
    cases = {
        "image": ({"image_uri": "no/such:image"}, {}, "no/such:image"),
        "gpus": ({}, {"gpus": 4}, "nvidia.com/gpu"),
        "quota": ({}, {"memory": "2Gi"}, "quota"),
    }
    for name, (fields, options, text) in cases.items():
        if name == "quota":
            kubernetes.bench.create("resourcequotas", kubernetes.name, quota)
            kubernetes.wait_until(
                lambda: kubernetes.bench.get("resourcequotas", kubernetes.name, "small").get("status"),
                "quota",
            )
        wanted = {"options": {**options, "discard_outputs": True}, "output_path": None, **fields}
        job = estimator(tmp_path, "", **wanted).fit(job_name=name, wait=False)
        kubernetes.wait_until(lambda job=job, text=text: text in job.describe().reason, f"{name}: {text}")
        assert job.status == JobStatus.PENDING
        job.stop()
        kubernetes.wait_until(lambda job=job: job.status == JobStatus.STOPPED, f"{name} stops")


def test_a_user_without_rights(kubernetes: Namespace, tmp_path: Path) -> None:
    kubernetes.server.kubeconfig(
        kubernetes.kubeconfig, user="bob", namespace=kubernetes.name, url=kubernetes.proxy.url
    )
    with pytest.raises(PlatformError, match="bob") as raised:
        estimator(tmp_path, "", output_path=None, options={"discard_outputs": True}).fit(job_name="refused")
    assert "create" in f"{raised.value} {raised.value.hint}"
    assert kubernetes.leftovers == []


def _evict(kubernetes: Namespace, pod: str) -> None:
    kubernetes.cluster.evict_under_pressure(kubernetes.name, pod)


def _preempt(kubernetes: Namespace, pod: str) -> None:
    kubernetes.cluster.preempt(kubernetes.name, pod)


def _delete(kubernetes: Namespace, pod: str) -> None:
    kubernetes.bench.delete("pods", kubernetes.name, pod)


def _lose_node(kubernetes: Namespace, pod: str) -> None:
    node = kubernetes.bench.get("pods", kubernetes.name, pod)["spec"]["nodeName"]
    kubernetes.cluster.lose_node(node)
    kubernetes.cluster.give_up_node(node)


LONG = pytest.mark.soak


@pytest.mark.parametrize(
    ("disrupt", "host"),
    [
        pytest.param(_lose_node, 0, id="node-of-the-leader-lost"),
        pytest.param(_lose_node, 1, id="node-lost", marks=LONG),
        pytest.param(_preempt, 0, id="leader-preempted", marks=LONG),
        pytest.param(_preempt, 1, id="preempted", marks=LONG),
        pytest.param(_evict, 0, id="leader-evicted", marks=LONG),
        pytest.param(_evict, 1, id="evicted", marks=LONG),
        pytest.param(_delete, 0, id="leader-deleted", marks=LONG),
        pytest.param(_delete, 1, id="deleted", marks=LONG),
    ],
)
def test_a_disruption_does_not_count_as_a_failure(
    kubernetes: Namespace, tmp_path: Path, disrupt: Callable[[Namespace, str], None], host: int
) -> None:
    """All pods are replaced, and no attempt counts as failed."""
    outputs = kubernetes.claim("outputs")
    job = estimator(tmp_path, WAITS_ONCE, host_timeout=5).fit(job_name="again", wait=False)
    for name in ("again-0", "again-1"):
        kubernetes.wait_for_line(name, "waits for its end")
    disrupt(kubernetes, kubernetes.pod(f"again-{host}")["metadata"]["name"])
    job.wait(timeout=120)
    assert job.status == JobStatus.COMPLETED
    assert sorted(path.name for path in outputs.glob("began-*")) == ["began-again-0", "began-again-1"]
    status = kubernetes.bench.get("jobs", kubernetes.name, "again")["status"]
    assert status["succeeded"] == 2
    assert status.get("failed", 0) == 0
