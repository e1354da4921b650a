"""Fixtures for tests on a real Kubernetes API server: a plugin, for the folders of other tests too.

A worker starts one server, when its first test asks for it. The fixture ``kubernetes`` is a namespace of it, to
which `KUBECONFIG` leads as the user alice: she may do what the guide's role allows, and nothing else.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from kube_client import KubeClient
from kube_roles import grant
from kube_server import KubeServer


@dataclass
class Namespace:
    """A new namespace, and the user alice who works in it."""

    name: str
    server: KubeServer
    kubeconfig: Path

    @property
    def bench(self) -> KubeClient:
        """May do everything."""
        return self.server.bench


@pytest.fixture(scope="session")
def kube_server() -> Iterator[KubeServer]:
    """One server for the session; each worker of pytest-xdist has its own."""
    with KubeServer() as server:
        yield server


@contextmanager
def new_namespace(server: KubeServer, folder: Path) -> Iterator[Namespace]:
    """A namespace to which the environment leads; it is deleted afterwards, without waiting for its end."""
    name = f"test-{secrets.token_hex(4)}"
    server.bench.create("namespaces", None, {"metadata": {"name": name}})
    grant(server.bench, name)
    kubeconfig = server.kubeconfig(folder / "kubeconfig", namespace=name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(kubeconfig))
        yield Namespace(name, server, kubeconfig)
    server.wait()  # the test may have stopped it
    server.bench.delete("namespaces", None, name)


@pytest.fixture
def kubernetes(kube_server: KubeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    with new_namespace(kube_server, tmp_path_factory.mktemp("kubeconfig")) as namespace:
        yield namespace


@pytest.fixture(scope="module")
def kubernetes_module(
    kube_server: KubeServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Namespace]:
    """The namespace of a module that looks at the results of a cached job."""
    with new_namespace(kube_server, tmp_path_factory.mktemp("kubeconfig")) as namespace:
        yield namespace
