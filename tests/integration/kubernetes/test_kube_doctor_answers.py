"""Checks of a cluster with operators, queues and registries that a test server has: over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from faulty_server import Answer, FaultyRequest, FaultyServer, faulty_server, json_answer, status

from cloudtrain.platforms import CheckStatus, Finding
from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.doctor.access import check_context, check_operators, check_version
from cloudtrain.platforms.kubernetes.doctor.image import anonymous_token, check_image
from cloudtrain.platforms.kubernetes.doctor.pods import (
    check_credentials,
    check_nodes,
    check_queue,
    check_quota,
    check_volumes,
)
from cloudtrain.platforms.kubernetes.life.objects import PodSet
from cloudtrain.platforms.kubernetes.offers import node_offers

VERSION = {"major": "1", "minor": "33+", "gitVersion": "v1.33.1-eks-1"}
QUEUE = "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/localqueues/gpus"


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with faulty_server() as server:
        server.will("GET", "/version", json_answer(VERSION))
        yield server


@pytest.fixture
def api(server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "config")))
    return Api.connect()


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
def test_versions(server: FaultyServer, api: Api, minor: str, expected: CheckStatus, text: str) -> None:
    server.answers["GET", "/version"].clear()
    server.will("GET", "/version", json_answer({"major": "1", "minor": minor, "gitVersion": f"v1.{minor}"}))
    found = check_version(api)
    assert found.status == expected
    assert text in found.what
    if minor == "29":
        assert "has no successPolicy" in check_version(api, has_spares=True).what


@pytest.mark.soak
def test_a_namespace_that_is_missing_or_being_deleted(server: FaultyServer, api: Api) -> None:
    assert "there is no namespace ns" in check_context(api).what
    server.will("GET", "/api/v1/namespaces/ns", json_answer({"status": {"phase": "Terminating"}}))
    assert check_context(api).what == "the namespace ns is being deleted"


def test_operators(server: FaultyServer, api: Api) -> None:
    install(server, "jobset.x-k8s.io", "v1alpha2", "JobSet")
    install(server, "kueue.x-k8s.io", "v1beta1", "Workload", "LocalQueue")
    assert check_operators(api) == Finding(
        CheckStatus.OK, "JobSet (jobset.x-k8s.io/v1alpha2), Kueue (kueue.x-k8s.io/v1beta1)"
    )


@pytest.mark.soak
def test_an_operator_of_another_version(server: FaultyServer, api: Api) -> None:
    install(server, "kubeflow.org", "v1", "MPIJob")
    found = check_operators(api)
    assert found.status == CheckStatus.WARNING
    assert "MPI operator has v1, and cloudtrain uses v2beta1" in found.what


def test_queues(server: FaultyServer, api: Api) -> None:
    install(server, "kueue.x-k8s.io", "v1beta2", "Workload", "LocalQueue")
    queues = {"items": [{"metadata": {"name": "gpu"}}], "metadata": {}}
    server.will("GET", QUEUE.rpartition("/")[0], json_answer(queues))
    missing = check_queue("gpus", api)
    assert missing == Finding(
        CheckStatus.FAILED, "there is no LocalQueue gpus in the namespace ns", "Did you mean 'gpu'?"
    )
    stopped = {"conditions": [{"type": "Active", "status": "False", "message": "ClusterQueue is stopped"}]}
    active = {"conditions": [{"type": "Active", "status": "True"}], "pendingWorkloads": 3}
    server.will("GET", QUEUE, json_answer({"status": stopped}), json_answer({"status": active}))
    assert check_queue("gpus", api).what == "the queue gpus admits no jobs: ClusterQueue is stopped"
    assert check_queue("gpus", api).what == "the queue gpus is active; 3 jobs wait in it"


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
        (status(404, "MANIFEST_UNKNOWN"), False, CheckStatus.WARNING, "has no image"),
        (status(401, "UNAUTHORIZED"), False, CheckStatus.WARNING, "only to those with credentials"),
        (status(401, "UNAUTHORIZED"), True, CheckStatus.UNKNOWN, "is private: the pull secrets decide"),
        (status(500, ""), False, CheckStatus.UNKNOWN, "cannot be looked up"),
    ],
)
def test_registries(
    server: FaultyServer,
    api: Api,
    answer: Answer,
    has_secrets: bool,
    expected: CheckStatus,
    text: str,
) -> None:
    server.will("HEAD", "/v2/team/train/manifests/v1", answer)
    server.will("GET", "/token", json_answer({"token": "anonymous"}))
    found = check_image(f"{server.url.removeprefix('http://')}/team/train:v1", has_secrets)
    assert found.status == expected
    assert text in found.what


@pytest.mark.parametrize("document", [b"[" * 60_000, b" " * 100_000, b"[]", b"no json"])
def test_a_registry_that_answers_anything(server: FaultyServer, api: Api, document: bytes) -> None:
    server.will("HEAD", "/v2/team/train/manifests/v1", private)
    server.will("GET", "/token", lambda request: request.send(200, document))
    found = check_image(f"{server.url.removeprefix('http://')}/team/train:v1", False)
    assert found.status != CheckStatus.OK


@pytest.mark.parametrize("host", ["{}", "other.test//{}", "{}@other.test"])
def test_a_registry_leads_to_no_service_of_this_machine(server: FaultyServer, host: str) -> None:
    realm = f"http://{host.format(server.url.removeprefix('http://'))}/token"
    server.will("GET", "/token", json_answer({"token": "x"}))
    with httpx.Client() as client:
        assert anonymous_token(client, f'Bearer realm="{realm}"', is_local=False) == ""
    assert not server.seen


def requesting(count: int, selector: dict[str, str], **amounts: str) -> list[PodSet]:
    containers = [{"resources": {"requests": amounts, "limits": amounts}}]
    return [PodSet(count, {"spec": {"nodeSelector": selector, "containers": containers}})]


def test_a_quota_counts_all_pods_of_a_job(server: FaultyServer, api: Api) -> None:
    hard, used = {"requests.memory": "8Gi", "limits.cpu": "8", "pods": "3"}, {"limits.cpu": "6"}
    quotas = [
        {"metadata": {"name": "team"}, "status": {"hard": hard, "used": used}},
        {
            "metadata": {"name": "other"},
            "spec": {"scopes": ["Terminating"]},
            "status": {"hard": {"pods": "0"}},
        },
    ]
    server.will("GET", "/api/v1/namespaces/ns/resourcequotas", json_answer({"items": quotas, "metadata": {}}))
    assert check_quota(requesting(2, {}, memory="4Gi"), api).status == CheckStatus.OK
    waiting = check_quota(requesting(2, {}, cpu="2"), api)
    assert waiting.what == "the job waits for quota: team: 4 limits.cpu, 6 of 8 in use"
    never = check_quota(requesting(2, {}, memory="5Gi"), api)
    assert never.status == CheckStatus.FAILED
    assert "team: 10 GiB requests.memory, 0 GiB of 8 GiB in use" in never.what.replace("0 MiB", "0 GiB")
    assert check_quota(requesting(4, {}), api).status == CheckStatus.FAILED


def test_nodes_that_fit_one_pod_are_enough(server: FaultyServer, api: Api) -> None:
    nodes = [
        {
            "metadata": {"name": name, "labels": {"pool": name}},
            "spec": {"unschedulable": name == "closed"},
            "status": {"allocatable": {"cpu": "8", "nvidia.com/gpu": gpus}},
        }
        for name, gpus in {"small": "2", "closed": "8"}.items()
    ]
    server.will("GET", "/api/v1/nodes", json_answer({"items": nodes, "metadata": {}}))
    assert check_nodes(requesting(2, {"pool": "small"}, cpu="8"), api).status == CheckStatus.OK
    found = check_nodes(requesting(1, {"pool": "closed"}, cpu="1"), api)
    assert found.what == "no node has 1 cpu and the label pool=closed"
    assert check_nodes(requesting(1, {}, **{"nvidia.com/gpu": "8"}), api).status == CheckStatus.WARNING


def test_nodes_are_offered_with_the_gpus_that_no_pod_has(server: FaultyServer, api: Api) -> None:
    def node(name: str, gpus: str, **spec: Any) -> dict[str, Any]:
        labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {"allocatable": {"nvidia.com/gpu": gpus}},
        }

    def pod(node_name: str, gpus: str) -> dict[str, Any]:
        containers = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": gpus}}}]
        return {"metadata": {"name": "p"}, "spec": {"nodeName": node_name, "containers": containers}}

    nodes = [
        node("a", "8"),
        node("b", "8"),
        node("c", "4"),
        node("d", "8", unschedulable=True),
        node("e", "0"),
    ]
    server.will("GET", "/api/v1/nodes", json_answer({"items": nodes, "metadata": {}}))
    pods = [pod("a", "8"), pod("b", "2"), pod("", "8")]
    server.will("GET", "/api/v1/pods", json_answer({"items": pods, "metadata": {}}))
    found = [(offer.gpu, offer.gpus, offer.hosts, offer.free_gpus) for offer in node_offers(api)]
    assert found == [("NVIDIA-H100-80GB-HBM3", 8, 2, 6), ("NVIDIA-H100-80GB-HBM3", 4, 1, 4)]

    server.answers["GET", "/api/v1/pods"] = [status(403, "Forbidden", "no")]
    assert [offer.free_gpus for offer in node_offers(api)] == [None, None]


def claim(*modes: str, phase: str = "Bound") -> dict[str, Any]:
    return {"spec": {"accessModes": modes}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("found", "expected", "text"),
    [
        (claim("ReadWriteMany"), CheckStatus.OK, "data (ReadWriteMany"),
        (claim("ReadOnlyMany"), CheckStatus.OK, "data (ReadOnlyMany"),
        (claim("ReadWriteOnce"), CheckStatus.WARNING, "on one node at a time"),
        (claim("ReadWriteMany", phase="Lost"), CheckStatus.FAILED, "the volume of data is lost"),
        (claim("ReadWriteMany", phase="Pending"), CheckStatus.OK, "data"),
    ],
)
def test_claims(
    server: FaultyServer, api: Api, found: dict[str, Any], expected: CheckStatus, text: str
) -> None:
    server.will("GET", "/api/v1/namespaces/ns/persistentvolumeclaims/data", json_answer(found))
    finding = check_volumes(["data"], 2, api)
    assert finding.status == expected
    assert text in finding.what


def test_credentials_of_pods(server: FaultyServer, api: Api) -> None:
    account = "/api/v1/namespaces/ns/serviceaccounts/default"
    role = {"metadata": {"annotations": {"iam.gke.io/gcp-service-account": "robot@project"}}}
    server.will("GET", account, json_answer({"metadata": {}}), json_answer(role))

    def found(**container: Any) -> Finding:
        return check_credentials([PodSet(1, {"spec": {"containers": [container]}})], api)

    assert found().status == CheckStatus.WARNING
    assert found().what == "the service account default has the role robot@project"
    assert found(env=[{"name": "AWS_ACCESS_KEY_ID"}]).what == "the pods have AWS_ACCESS_KEY_ID"
    assert found(envFrom=[{"secretRef": {"name": "s3"}}]).what == "the pods take variables from the Secret s3"
