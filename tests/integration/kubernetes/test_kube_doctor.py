"""``cloudtrain doctor --platform kubernetes`` on a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from kube_fixtures import Namespace
from kube_roles import grant

from cloudtrain.platforms import CheckStatus, Finding, run_checks
from cloudtrain.platforms.kubernetes import KubernetesPlatform
from cloudtrain.spec import TrainingJob
from cloudtrain.submission import prepare

FORBIDDEN_REGISTRY = "127.0.0.1:1/team/train:1"
"""Nothing listens there."""


@pytest.fixture
def home(kubernetes: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(tmp_path / "config.yaml"))
    (tmp_path / "config.yaml").touch()
    (tmp_path / "train.py").write_text("print(1)\n")
    return tmp_path


def look(home: Path, *, hosts: int = 2, **options: Any) -> dict[str, Finding]:
    """The findings for a job with these ``platform_options``."""
    fields = {
        "entry_point": str(home / "train.py"),
        "platform": "kubernetes",
        "job_name": "looked-at",
        "image_uri": FORBIDDEN_REGISTRY,
        "instance_count": hosts,
        "platform_options": {"discard_outputs": True, **options},
    }
    prepared = prepare(fields, defaults={})
    return dict(run_checks(KubernetesPlatform().preflight(prepared.job, prepared.request, ())))


def problem(found: dict[str, Finding], check: str, status: CheckStatus = CheckStatus.FAILED) -> str:
    finding = found[check]
    assert finding.status == status, finding
    return f"{finding.what}. {finding.hint}"


def make_node(place: Namespace, name: str, gpus: int) -> None:
    """A node with GPUs, of this test only: nodes have no namespace."""
    labels = {"pool": place.name}
    place.bench.create("nodes", None, {"metadata": {"name": name, "labels": labels}})
    place.bench.patch(
        "nodes", None, name, {"spec": {"taints": []}}
    )  # until its kubelet says that it is ready
    allocatable = {
        "cpu": "8",
        "memory": "32Gi",
        "pods": "100",
        **({"nvidia.com/gpu": str(gpus)} if gpus else {}),
    }
    place.bench.patch("nodes", None, name, {"status": {"allocatable": allocatable}}, subresource="status")


def test_a_cluster_in_sentences(kubernetes: Namespace, home: Path) -> None:
    kubernetes.server.kubeconfig(kubernetes.kubeconfig, namespace=kubernetes.name)  # without the proxy
    job = TrainingJob.from_dict({"platform": "kubernetes"})
    found = dict(run_checks(KubernetesPlatform().preflight(job, None, ())))
    where = f"context test, namespace {kubernetes.name}, at {kubernetes.server.url}, with a token"
    assert found["context"] == Finding(CheckStatus.OK, where)
    assert "v1.20.2 has no Indexed Jobs" in problem(found, "version")
    assert found["operators"].status == CheckStatus.OK
    assert found["rights"].status in (CheckStatus.OK, CheckStatus.WARNING)


def test_no_cluster(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(home / "missing"))
    job = TrainingJob.from_dict({"platform": "kubernetes"})
    found = dict(run_checks(KubernetesPlatform().preflight(job, None, ())))
    assert "there is no kubeconfig" in problem(found, "context")
    others = {finding.status for name, finding in found.items() if name != "context"}
    assert others == {CheckStatus.UNKNOWN}


def test_missing_rights_are_a_role_that_kubectl_applies(kubernetes: Namespace, home: Path) -> None:
    kubernetes.server.kubeconfig(kubernetes.kubeconfig, user="bob", namespace=kubernetes.name)
    found = look(home)
    told = problem(found, "rights")
    assert "create/get/list/watch/patch/delete jobs (to submit, watch and stop jobs)" in told
    assert "get pods/log (to read logs)" in told
    assert found["quota"].status == found["nodes"].status == CheckStatus.UNKNOWN
    assert found["quota"].what == f"bob may not list resourcequotas in the namespace {kubernetes.name}"
    role = yaml.safe_load(found["rights"].hint.split("FILE:\n", 1)[1])
    kubernetes.bench.create("roles", kubernetes.name, role)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "cloudtrain"}
    subjects = [{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}]
    binding = {"metadata": {"name": "cloudtrain"}, "roleRef": reference, "subjects": subjects}
    kubernetes.bench.create("rolebindings", kubernetes.name, binding)
    all_of_them = "you may do all that jobs need ("
    kubernetes.wait_until(lambda: look(home)["rights"].what.startswith(all_of_them), "the new rights")


def test_the_job_is_shown_to_the_cluster(kubernetes: Namespace, home: Path) -> None:
    found = look(home)
    assert found["admission"] == Finding(CheckStatus.OK, "the cluster accepts the Job (a dry run)")
    assert kubernetes.bench.list("jobs", kubernetes.name) == []
    assert found["names"].status == CheckStatus.OK
    assert "Job of batch/v1" in found["rendering"].what
    assert "cannot be looked up in" in problem(found, "image", CheckStatus.UNKNOWN)
    grant(
        kubernetes.bench, kubernetes.name, "bob", [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    )
    kubernetes.server.kubeconfig(kubernetes.kubeconfig, user="bob", namespace=kubernetes.name)
    limits = {"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]}
    kubernetes.bench.create("limitranges", kubernetes.name, {"metadata": {"name": "small"}, "spec": limits})
    admitted = CheckStatus.OK
    kubernetes.wait_until(lambda: look(home, memory="2Gi")["admission"].status != admitted, "the limit")
    assert "forbids it: maximum memory usage per Container is 1Gi, but limit is 2Gi" in problem(
        look(home, memory="2Gi"), "admission"
    )


def test_quotas(kubernetes: Namespace, home: Path) -> None:
    hard = {"requests.nvidia.com/gpu": "8", "pods": "10", "requests.memory": "64Gi"}
    quota = {"metadata": {"name": "team"}, "spec": {"hard": hard}}
    kubernetes.bench.create("resourcequotas", kubernetes.name, quota)
    status = {"status": {"hard": hard, "used": {"requests.nvidia.com/gpu": "6", "pods": "3"}}}
    kubernetes.bench.patch("resourcequotas", kubernetes.name, "team", status, subresource="status")
    assert "team: 16 requests.nvidia.com/gpu, " in problem(look(home, gpus=8, memory="1Gi"), "quota")
    told = problem(look(home, gpus=8), "quota")
    assert "team: 16 requests.nvidia.com/gpu" in told
    grant(
        kubernetes.bench, kubernetes.name, "bob", [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    )
    kubernetes.server.kubeconfig(kubernetes.kubeconfig, user="bob", namespace=kubernetes.name)
    assert "the quota team of the namespace requires every pod to specify" in problem(look(home), "admission")


def test_nodes(kubernetes: Namespace, home: Path) -> None:
    bench, name = kubernetes.bench, kubernetes.name
    small, large = f"{name}-small", f"{name}-large"
    make_node(kubernetes, small, 2)
    make_node(kubernetes, large, 8)
    try:
        selector = {"node_selector": {"pool": name}}
        assert look(home, gpus=8, **selector)["nodes"].what == "a pod of the job fits on a node"
        told = problem(look(home, gpus=16, **selector), "nodes", CheckStatus.WARNING)
        assert f"no node has 16 nvidia.com/gpu and the label pool={name}" in told
        told = problem(look(home, node_selector={"pool": "none"}), "nodes", CheckStatus.WARNING)
        assert "no node has the label pool=none" in told
    finally:
        for node in (small, large):
            bench.delete("nodes", None, node)


def test_what_the_pods_name(kubernetes: Namespace, home: Path) -> None:
    bench, name = kubernetes.bench, kubernetes.name
    options = {
        "service_account": "robot",
        "image_pull_secrets": ["registry"],
        "priority_class": "urgent",
        "volumes": ["data:/data"],
        "secret_env": {"TOKEN": "wandb/key"},
        "queue": "gpus",
    }
    found = look(home, **options)
    assert f"there is no service account robot in the namespace {name}" in problem(found, "service account")
    assert "there is no Secret registry" in problem(found, "pull secrets")
    assert "there is no priority class urgent" in problem(found, "priority class")
    assert "there is no PersistentVolumeClaim data" in problem(found, "volumes")
    assert "there is no Secret wandb" in problem(found, "secrets")
    assert "the cluster does not have Kueue" in problem(found, "queue")
    annotations = {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"}
    bench.create("serviceaccounts", name, {"metadata": {"name": "robot", "annotations": annotations}})
    bench.create("secrets", name, {"metadata": {"name": "registry"}})
    bench.create("secrets", name, {"metadata": {"name": "wandb"}, "stringData": {"token": "x"}})
    resources = {"requests": {"storage": "1Gi"}}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": resources, "storageClassName": "none"}
    bench.create("persistentvolumeclaims", name, {"metadata": {"name": "data"}, "spec": claim})
    found = look(home, **options)
    assert found["service account"].what == "robot, with the role arn:aws:iam::1:role/r"
    assert found["pull secrets"] == Finding(CheckStatus.OK, "registry")
    assert "the Secret wandb has no key key. Its keys: token." in problem(found, "secrets")
    told = problem(found, "volumes", CheckStatus.WARNING)
    assert "data can be mounted on one node at a time (ReadWriteOnce), and the job has 2 pods" in told
    assert look(home, hosts=1, **options)["volumes"].status == CheckStatus.OK
