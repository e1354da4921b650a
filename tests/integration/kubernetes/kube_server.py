"""A real Kubernetes API server, with etcd and the controllers that collect garbage: ready in about four seconds.

RBAC is on. Clients prove who they are by a token, or by a certificate. It has no scheduler, no kubelet, no controller
of Jobs. No process outlives the tests: see `daemons`.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from daemons import Daemons
from kube_certificates import SERVER, write_certificates
from kube_client import KubeClient, KubeError
from kube_programs import LEFT_OUT, find_etcd, find_server
from slurm_cluster import free_ports

USERS = {
    "bench": ("bench-token", "system:masters"),
    "alice": ("alice-token", "researchers"),
    "bob": ("bob-token", ""),
}
"""Token and group of each user. What alice may do, each namespace says; bob may do nothing, bench everything."""

CONTROLLERS = ("garbagecollector", "namespace", "ttl-after-finished", "resourcequota")
PATIENCE = 120.0


class KubeServerFailed(Exception):
    """The server did not come up; the message holds the end of its log."""


class KubeServer:
    """A running server. Use it as a context manager."""

    def __enter__(self) -> KubeServer:
        programs = find_server()
        if programs is None:
            raise KubeServerFailed(LEFT_OUT)
        self._programs = programs
        with ExitStack() as stack:
            self.folder = Path(tempfile.mkdtemp(prefix="kube-"))
            self.daemons = stack.enter_context(Daemons(self.folder))
            self.certificates = self.folder / "pki"
            write_certificates(self.certificates)
            self._write_users()
            self._ports = free_ports(5)
            self.url = f"https://127.0.0.1:{self._ports[0]}"
            self.bench = self.client("bench")
            self._start_etcd()
            self.start_apiserver()
            self._wait_until_ready()
            self._start_controllers()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def authority(self) -> Path:
        """The certificate by which clients know the server."""
        return self.certificates / "ca.crt"

    def client(self, user: str) -> KubeClient:
        return KubeClient(self.url, self.authority, USERS[user][0], bench=user == "bench")

    def kubeconfig(
        self, path: Path, *, user: str = "alice", namespace: str = "default", url: str | None = None
    ) -> Path:
        """Write a kubeconfig with the context ``test``. ``url``: that of a proxy."""
        write_kubeconfig(path, url or self.url, self.authority, {"token": USERS[user][0]}, namespace)
        return path

    def start_apiserver(self) -> None:
        """Start it, for the first time or after `stop_apiserver`; it is ready seconds later: see `wait`."""
        pki = self.certificates
        options = {
            "etcd-servers": f"http://127.0.0.1:{self._ports[1]}",
            "bind-address": "127.0.0.1",
            "secure-port": self._ports[0],
            "tls-cert-file": pki / f"{SERVER}.crt",
            "tls-private-key-file": pki / f"{SERVER}.key",
            "client-ca-file": self.authority,
            "token-auth-file": self.folder / "tokens.csv",
            "authorization-mode": "RBAC",
            "service-account-issuer": "https://kubernetes.test",
            "service-account-key-file": pki / "service-account.key",
            "service-account-signing-key-file": pki / "service-account.key",
            "disable-admission-plugins": "ServiceAccount",  # it waits for a controller that makes their tokens
            "endpoint-reconciler-type": "none",
            "service-cluster-ip-range": "10.96.0.0/16",
            "kubelet-client-certificate": pki / "kubelet-client.crt",
            "kubelet-client-key": pki / "kubelet-client.key",
            "kubelet-certificate-authority": self.authority,
            "kubelet-preferred-address-types": "InternalIP",
            "feature-gates": "TTLAfterFinished=true",
            "profiling": "false",
        }
        self._start("kube-apiserver", str(self._programs / "kube-apiserver"), options)

    def stop_apiserver(self, number: int = signal.SIGKILL) -> None:
        """As if its machine had gone, or with SIGTERM as in an upgrade."""
        self.daemons.stop("kube-apiserver", number)

    def wait(self) -> None:
        """Wait until the server answers."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError):
                if self.bench.raw("GET", "/readyz")[0] == 200:
                    return
            if not self.daemons.is_alive("kube-apiserver") or time.monotonic() > deadline:
                raise KubeServerFailed(f"kube-apiserver: {self.daemons.log('kube-apiserver')[-3000:]}")
            time.sleep(0.1)

    def _wait_until_ready(self) -> None:
        self.wait()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:  # these come a moment later
            with contextlib.suppress(KubeError):
                self.bench.get("namespaces", None, "default")
                self.bench.get("clusterroles", None, "view")
                self.bench.get("priorityclasses", None, "system-node-critical")
                return
            time.sleep(0.1)
        raise KubeServerFailed("kube-apiserver does not create what every cluster has")

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in self._ports[1:3])
        options = {
            "data-dir": self.folder / "etcd",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "unsafe-no-fsync": "true",  # the data need not survive this machine
            "log-level": "error",
        }
        self._start("etcd", str(find_etcd()), options)

    def _start_controllers(self) -> None:
        config = self.kubeconfig(self.folder / "controllers.yaml", user="bench")
        options = {
            "kubeconfig": config,
            "controllers": ",".join(CONTROLLERS),
            "feature-gates": "TTLAfterFinished=true",
            "leader-elect": "false",
            "bind-address": "127.0.0.1",
            "secure-port": self._ports[3],
            "port": 0,
            "cert-dir": self.folder / "controllers",
            "kube-api-qps": 500,
            "kube-api-burst": 500,
            "profiling": "false",
        }
        self._start("kube-controller-manager", str(self._programs / "kube-controller-manager"), options)

    def _start(self, name: str, program: str, options: dict[str, Any]) -> None:
        command = [program, *(f"--{option}={value}" for option, value in options.items())]
        environment = {"PATH": os.defpath, "HOME": str(self.folder), "GOMAXPROCS": "2"}
        self.daemons.start(name, command, environment)

    def _write_users(self) -> None:
        with open(self.folder / "tokens.csv", "w", newline="", encoding="utf-8") as file:
            for name, (token, group) in USERS.items():
                csv.writer(file).writerow([token, name, name, *([group] if group else [])])


def write_kubeconfig(
    path: Path, url: str, authority: Path, user: dict[str, Any], namespace: str, context: str = "test"
) -> None:
    """Write a kubeconfig, as JSON, which is YAML. ``user``: how the client proves who it is."""
    cluster = {"server": url, "certificate-authority": str(authority)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "contexts": [
            {"name": context, "context": {"cluster": context, "user": context, "namespace": namespace}}
        ],
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": context, "user": user}],
    }
    path.touch(0o600)
    path.write_text(json.dumps(document, indent=1))
