"""The server of the tests behaves as the tests rely on."""

from __future__ import annotations

import subprocess
import time
from typing import Any

import pytest
from kube_client import KubeError
from kube_fixtures import Namespace

JOB: dict[str, Any] = {
    "metadata": {"name": "train"},
    "spec": {
        "ttlSecondsAfterFinished": 1,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}},
    },
}


def test_a_finished_job_goes_with_what_it_owns(kubernetes: Namespace) -> None:
    bench, name = kubernetes.bench, kubernetes.name
    job = bench.create("jobs", name, JOB)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": job["metadata"]["uid"]}
    bench.create("configmaps", name, {"metadata": {"name": "owned", "ownerReferences": [owner]}})
    bench.create("configmaps", name, {"metadata": {"name": "other"}})
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    done = {"type": "Complete", "status": "True", "lastTransitionTime": now}
    bench.patch("jobs", name, "train", {"status": {"conditions": [done], "completionTime": now}}, "status")
    deadline = time.monotonic() + 60
    while bench.find("configmaps", name, "owned") or bench.find("jobs", name, "train"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert bench.find("configmaps", name, "other")


def test_a_user_has_the_rights_of_the_role(kubernetes: Namespace) -> None:
    alice, bob = (kubernetes.server.client(user) for user in ("alice", "bob"))
    assert alice.list("pods", kubernetes.name) == []
    with pytest.raises(KubeError, match=r'403.*bob.*cannot list resource "pods"'):
        bob.list("pods", kubernetes.name)
    with pytest.raises(KubeError, match="403"):
        alice.list("pods", "kube-system")


def test_kubectl_uses_the_kubeconfig(kubernetes: Namespace) -> None:
    done = subprocess.run(["kubectl", "get", "pods"], capture_output=True, text=True, check=True)
    assert f"No resources found in {kubernetes.name} namespace." in done.stderr
