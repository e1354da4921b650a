"""Checks of a cluster with operators, queues and registries that a test server has: over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from faulty_server import Answer, FaultyRequest, FaultyServer, faulty_server, json_answer, status

from cloudtrain.platforms import CheckStatus, Finding
from cloudtrain.platforms.kubernetes.doctor.access import (
    check_context,
    check_operators,
    check_queue,
    check_version,
)
from cloudtrain.platforms.kubernetes.doctor.cluster import Cluster
from cloudtrain.platforms.kubernetes.doctor.references import (
    anonymous_token,
    check_credentials,
    check_image,
    check_volumes,
)
from cloudtrain.platforms.kubernetes.life.objects import PodSet

VERSION = {"major": "1", "minor": "33+", "gitVersion": "v1.33.1-eks-1"}
QUEUE = "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/localqueues/gpus"


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with faulty_server() as server:
        server.will("GET", "/version", json_answer(VERSION))
        yield server


@pytest.fixture
def cluster(server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "config")))
    return Cluster(None, None)


def install(server: FaultyServer, group: str, version: str, *kinds: str) -> None:
    versions = {"versions": [{"version": version}], "preferredVersion": {"version": version}}
    server.will("GET", f"/apis/{group}", json_answer(versions))
    resources = {"resources": [{"kind": kind} for kind in kinds]}
    server.will("GET", f"/apis/{group}/{version}", json_answer(resources))


@pytest.mark.parametrize(
    ("minor", "expected", "text"),
    [
        ("20", CheckStatus.FAILED, "has no Indexed Jobs"),
        ("23", CheckStatus.WARNING, "has Indexed Jobs as a beta, and no podFailurePolicy"),
        ("25", CheckStatus.WARNING, "has no podFailurePolicy: evictions and lost nodes count"),
        ("29", CheckStatus.OK, "podFailurePolicy is a beta"),
        ("33+", CheckStatus.OK, "Kubernetes v1"),
    ],
)
def test_versions(
    server: FaultyServer, cluster: Cluster, minor: str, expected: CheckStatus, text: str
) -> None:
    server.answers["GET", "/version"].clear()
    server.will("GET", "/version", json_answer({"major": "1", "minor": minor, "gitVersion": f"v1.{minor}"}))
    found = check_version(cluster)
    assert found.status == expected
    assert text in found.what


@pytest.mark.soak
def test_a_namespace_that_is_missing_or_being_deleted(server: FaultyServer, cluster: Cluster) -> None:
    assert "there is no namespace ns" in check_context(cluster).what
    server.will("GET", "/api/v1/namespaces/ns", json_answer({"status": {"phase": "Terminating"}}))
    assert check_context(cluster).what == "the namespace ns is being deleted"


def test_operators(server: FaultyServer, cluster: Cluster) -> None:
    install(server, "jobset.x-k8s.io", "v1alpha2", "JobSet")
    install(server, "kueue.x-k8s.io", "v1beta1", "Workload", "LocalQueue")
    assert check_operators(cluster) == Finding(
        CheckStatus.OK, "JobSet (jobset.x-k8s.io/v1alpha2), Kueue (kueue.x-k8s.io/v1beta1)"
    )


@pytest.mark.soak
def test_an_operator_of_another_version(server: FaultyServer, cluster: Cluster) -> None:
    install(server, "kubeflow.org", "v1", "MPIJob")
    found = check_operators(cluster)
    assert found.status == CheckStatus.WARNING
    assert "MPI operator has v1, and cloudtrain uses v2beta1" in found.what


def test_queues(server: FaultyServer, cluster: Cluster) -> None:
    main = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "gpus"}}}
    install(server, "kueue.x-k8s.io", "v1beta2", "Workload", "LocalQueue")
    queues = {"items": [{"metadata": {"name": "gpu"}}], "metadata": {}}
    server.will("GET", QUEUE.rpartition("/")[0], json_answer(queues))
    missing = check_queue(main, cluster)
    assert missing == Finding(
        CheckStatus.FAILED, "there is no LocalQueue gpus in the namespace ns", "Did you mean 'gpu'?"
    )
    stopped = {"conditions": [{"type": "Active", "status": "False", "message": "ClusterQueue is stopped"}]}
    active = {"conditions": [{"type": "Active", "status": "True"}], "pendingWorkloads": 3}
    server.will("GET", QUEUE, json_answer({"status": stopped}), json_answer({"status": active}))
    assert check_queue(main, cluster).what == "the queue gpus admits no jobs: ClusterQueue is stopped"
    assert check_queue(main, cluster).what == "the queue gpus is active; 3 jobs wait in it"


def private(request: FaultyRequest) -> None:
    """A registry that gives everyone a token, and shows images to those who have it."""
    host = request.headers["Host"]
    if request.headers.get("Authorization") == "Bearer anonymous":
        request.send(200, b"")
        return
    challenge = f'Bearer realm="http://{host}/token",service="test",scope="repository:team/train:pull"'
    request.send(401, b"", {"WWW-Authenticate": challenge})


@pytest.mark.parametrize(
    ("answer", "has_secrets", "expected", "text"),
    [
        (status(200, ""), False, CheckStatus.OK, "is public"),
        (private, False, CheckStatus.OK, "is public"),
        (status(404, "MANIFEST_UNKNOWN"), False, CheckStatus.FAILED, "has no image"),
        (status(401, "UNAUTHORIZED"), False, CheckStatus.WARNING, "only to those with credentials"),
        (status(401, "UNAUTHORIZED"), True, CheckStatus.UNKNOWN, "is private: the pull secrets decide"),
        (status(500, ""), False, CheckStatus.UNKNOWN, "cannot be looked up"),
    ],
)
def test_registries(
    server: FaultyServer,
    cluster: Cluster,
    answer: Answer,
    has_secrets: bool,
    expected: CheckStatus,
    text: str,
) -> None:
    server.will("HEAD", "/v2/team/train/manifests/v1", answer)
    server.will("GET", "/token", json_answer({"token": "anonymous"}))
    found = check_image(f"{server.url.removeprefix('http://')}/team/train:v1", has_secrets, cluster)
    assert found.status == expected
    assert text in found.what


@pytest.mark.parametrize("document", [b"[" * 60_000, b" " * 100_000, b"[]", b"no json"])
def test_a_registry_that_answers_anything(server: FaultyServer, cluster: Cluster, document: bytes) -> None:
    server.will("HEAD", "/v2/team/train/manifests/v1", private)
    server.will("GET", "/token", lambda request: request.send(200, document))
    found = check_image(f"{server.url.removeprefix('http://')}/team/train:v1", False, cluster)
    assert found.status != CheckStatus.OK


@pytest.mark.parametrize("host", ["{}", "other.test//{}", "{}@other.test"])
def test_a_registry_leads_to_no_service_of_this_machine(server: FaultyServer, host: str) -> None:
    realm = f"http://{host.format(server.url.removeprefix('http://'))}/token"
    server.will("GET", "/token", json_answer({"token": "x"}))
    with httpx.Client() as client:
        assert anonymous_token(client, f'Bearer realm="{realm}"', is_local=False) == ""
    assert not server.seen


def test_an_image_that_nodes_have_already(server: FaultyServer, cluster: Cluster) -> None:
    images = [{"names": ["docker.io/library/python:3.12"]}]
    node = {"metadata": {"name": "n1"}, "status": {"images": images}}
    server.will("GET", "/api/v1/nodes", json_answer({"items": [node], "metadata": {}}))
    found = check_image("python:3.12", False, cluster)
    assert found == Finding(CheckStatus.OK, "python:3.12 is already on n1")


def claim(*modes: str, phase: str = "Bound", storage_class: str | None = None) -> dict[str, Any]:
    return {"spec": {"accessModes": modes, "storageClassName": storage_class}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("found", "expected", "text"),
    [
        (claim("ReadWriteMany"), CheckStatus.OK, "data (ReadWriteMany"),
        (claim("ReadWriteOnce"), CheckStatus.WARNING, "on one node at a time"),
        (claim("ReadWriteOncePod"), CheckStatus.FAILED, "by one pod (ReadWriteOncePod), and the job has 2"),
        (claim("ReadOnlyMany"), CheckStatus.FAILED, "can only be read"),
        (claim("ReadWriteMany", phase="Lost"), CheckStatus.FAILED, "the volume of data is lost"),
        (claim("ReadWriteMany", phase="Pending"), CheckStatus.WARNING, "no storage class that makes one"),
        (claim("ReadWriteMany", phase="Pending", storage_class="lazy"), CheckStatus.OK, "data"),
    ],
)
def test_claims(
    server: FaultyServer, cluster: Cluster, found: dict[str, Any], expected: CheckStatus, text: str
) -> None:
    server.will("GET", "/api/v1/namespaces/ns/persistentvolumeclaims/data", json_answer(found))
    lazy = json_answer({"volumeBindingMode": "WaitForFirstConsumer"})
    server.will("GET", "/apis/storage.k8s.io/v1/storageclasses/lazy", lazy)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    mounts = [{"name": "v", "mountPath": "/data"}]
    pods = [PodSet(2, {"spec": {"volumes": volumes, "containers": [{"volumeMounts": mounts}]}})]
    finding = check_volumes(pods, cluster)
    assert finding.status == expected
    assert text in finding.what


def test_credentials_of_pods(server: FaultyServer, cluster: Cluster) -> None:
    account = "/api/v1/namespaces/ns/serviceaccounts/default"
    role = {"metadata": {"annotations": {"iam.gke.io/gcp-service-account": "robot@project"}}}
    server.will("GET", account, json_answer({"metadata": {}}), json_answer(role))

    def found(**container: Any) -> Finding:
        return check_credentials([PodSet(1, {"spec": {"containers": [container]}})], cluster)

    assert found().status == CheckStatus.WARNING
    assert found().what == "the service account default has the role robot@project"
    assert found(env=[{"name": "AWS_ACCESS_KEY_ID"}]).what == "the pods have AWS_ACCESS_KEY_ID"
    assert found(envFrom=[{"secretRef": {"name": "s3"}}]).what == "the pods take variables from the Secret s3"
