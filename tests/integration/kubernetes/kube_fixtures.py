"""Fixtures for tests on a real Kubernetes API server: a plugin, for the folders of other tests too.

A worker starts one server and its cluster, when its first test asks for them. The fixture ``kubernetes`` is a
namespace, to which `KUBECONFIG` leads as the user alice: she may do what the guide's role allows, and nothing else. Her
requests go through a proxy that injects faults if a test asks for them. Pods run as processes of this machine.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kube_client import KubeClient
from kube_cluster import KubeCluster
from kube_proxy import KubeProxy
from kube_roles import grant
from kube_server import KubeServer

from cloudtrain.testing import S3Server

Object = dict[str, Any]


@dataclass
class Namespace:
    """A new namespace, and the user alice who works in it."""

    name: str
    cluster: KubeCluster
    kubeconfig: Path

    @property
    def server(self) -> KubeServer:
        return self.cluster.server

    @property
    def proxy(self) -> KubeProxy:
        """Its ``faults`` hit the next requests of clients; its ``requests`` are those so far."""
        return self.cluster.proxy

    @property
    def bench(self) -> KubeClient:
        """May do everything, and meets no faults."""
        return self.cluster.bench

    def give_storage(self, s3_server: S3Server) -> None:
        """Let the pods of this test reach the S3 server, and give them its credentials as their role would."""
        self.cluster.kubelet.role = s3_server.env
        self.cluster.kubelet.reachable.add(s3_server.env["AWS_ENDPOINT_URL_S3"].rpartition("/")[2])

    def claim(self, name: str) -> Path:
        """A new PersistentVolumeClaim, as a folder of this machine."""
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        self.bench.create("persistentvolumeclaims", self.name, {"metadata": {"name": name}, "spec": spec})
        return self.cluster.kubelet.claims / self.name / name

    @property
    def pods(self) -> list[Object]:
        return self.bench.list("pods", self.name)

    def pod(self, hostname: str) -> Object:
        """The newest pod with this host name, such as ``train-0``.

        Raises:
            LookupError: there is none.
        """
        found = [
            pod for pod in self.pods if hostname in (pod["spec"].get("hostname"), pod["metadata"]["name"])
        ]
        if not found:
            raise LookupError(f"there is no pod {hostname}")
        return max(found, key=lambda pod: int(pod["metadata"]["resourceVersion"]))

    def log(self, hostname: str) -> str:
        """The output of the pod so far."""
        return self.cluster.log(self.name, self.pod(hostname)["metadata"]["name"])

    def wait_until(self, condition: Callable[[], object], what: str, patience: float = 90) -> None:
        """Wait until ``condition`` holds. A LookupError in it counts as no."""
        deadline = time.monotonic() + patience
        while True:
            try:
                if condition():
                    return
            except LookupError:
                pass
            assert time.monotonic() < deadline, f"{what}: not within {patience} s"
            time.sleep(0.05)

    def wait_for_line(self, hostname: str, text: str, patience: float = 90) -> None:
        """Wait until a pod has printed ``text``."""
        self.wait_until(lambda: text in self.log(hostname), f"the line {text!r} of {hostname}", patience)

    @property
    def leftovers(self) -> list[str]:
        """All that jobs leave in the namespace: ``configmaps/train`` and so on."""
        kinds = ("jobs", "pods", "services", "configmaps", "secrets", "networkpolicies")
        return [
            f"{kind}/{item['metadata']['name']}"
            for kind in kinds
            for item in self.bench.list(kind, self.name)
        ]


@pytest.fixture(scope="session")
def kube_server() -> Iterator[KubeServer]:
    """One server for the session; each worker of pytest-xdist has its own."""
    with KubeServer() as server:
        yield server


@pytest.fixture(scope="session")
def kube_cluster(kube_server: KubeServer) -> Iterator[KubeCluster]:
    """The server's nodes and controllers."""
    with KubeCluster(kube_server) as cluster:
        yield cluster


@contextmanager
def new_namespace(cluster: KubeCluster, folder: Path, user: str = "alice") -> Iterator[Namespace]:
    """A namespace to which the environment leads; it is deleted afterwards, without waiting for its end."""
    name = f"test-{secrets.token_hex(4)}"
    cluster.bench.create("namespaces", None, {"metadata": {"name": name}})
    grant(cluster.bench, name)
    kubeconfig = folder / "kubeconfig"
    cluster.server.kubeconfig(kubeconfig, user=user, namespace=name, url=cluster.proxy.url)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(kubeconfig))
        try:
            yield Namespace(name, cluster, kubeconfig)
        finally:
            cluster.reset(name)


@pytest.fixture
def kubernetes(kube_cluster: KubeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    with new_namespace(kube_cluster, tmp_path_factory.mktemp("kubeconfig")) as namespace:
        yield namespace


@pytest.fixture(scope="module")
def kubernetes_module(
    kube_cluster: KubeCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Namespace]:
    """The namespace of a module that looks at the results of a cached job."""
    with new_namespace(kube_cluster, tmp_path_factory.mktemp("kubeconfig")) as namespace:
        yield namespace
