"""Plays the kubelets of all nodes: it runs the pods that the scheduler has put there, and serves their logs."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import relay
from kube_client import KubeClient, KubeError, path_of
from kube_containers import Containers, Mount
from kube_dns import Names
from kube_images import Images
from kube_objects import is_finished, key_of
from kube_pod import PodWorker
from kube_pod_logs import ContainerLog, KubeletServer

Object = dict[str, Any]


class Kubelet:
    """Use it as a context manager.

    Args:
        client: the bench's client, through the proxy.
        folder: for volumes and logs.
        certificates: the folder of the cluster's certificates.
    """

    def __init__(self, client: KubeClient, folder: Path, certificates: Path) -> None:
        self.client = client
        self.folder = folder
        self.claims = folder / "claims"
        self.images = Images()
        self.role: Mapping[str, str] = {}
        """Variables that every container gets, as from the role of a service account."""
        self.reachable: set[str] = set()
        """``host:port`` of servers of this machine that pods reach at the same address."""
        self.names = Names()
        self.closed = False
        self.image_mounts = _image_mounts()
        self.searchable = sorted({str(one) for path in _image_parts() for one in path.parents})
        self.workers: dict[str, PodWorker] = {}
        """By the pod's UID."""
        self._addresses = (f"10.244.{number // 250}.{number % 250 + 2}" for number in itertools.count())
        self._nodes: set[str] = set()
        """Those that are up."""
        self._recorded: set[tuple[str, str, str]] = set()
        self._listeners: dict[int, list[socket.socket]] = {}
        self._server = KubeletServer(certificates, self._find_log, self._execute)

    def __enter__(self) -> Kubelet:
        self.containers = Containers(self.folder)
        self.containers.__enter__()
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True
        for worker in list(self.workers.values()):
            worker.lose()
        self._server.__exit__()
        self.containers.__exit__()

    @property
    def port(self) -> int:
        return self._server.port

    def pod_changed(self, kind: str, pod: Object) -> None:
        """Start the pods of the nodes, and pass changes of a pod on to its worker."""
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        worker = self.workers.get(uid)
        if kind == "DELETED":
            if worker:
                worker.lose()
            self._recorded = {one for one in self._recorded if one[0] != uid}
        elif worker:
            worker.update(pod)
        elif node in self._nodes and not is_finished(pod):
            self.workers[uid] = worker = PodWorker(self, pod)
            worker.start()

    def worker(self, namespace: str, name: str) -> PodWorker:
        """The worker of a pod, by the pod's name.

        Raises:
            LookupError: no node runs it.
        """
        for one in reversed(list(self.workers.values())):
            if (one.namespace, one.pod_name) == (namespace, name):
                return one
        raise LookupError(f"no node runs {namespace}/{name}")

    def lose_node(self, node: str) -> None:
        """The machine has gone: its pods too, and nothing is reported."""
        self._nodes.discard(node)
        for worker in list(self.workers.values()):
            if worker.pod["spec"].get("nodeName") == node:
                worker.lose()

    def add_node(self, node: str) -> None:
        self._nodes.add(node)

    def kill_namespace(self, namespace: str) -> None:
        """Kill the pods of a namespace that goes, and let their objects go with it."""
        for worker in list(self.workers.values()):
            if worker.namespace == namespace:
                worker.lose()
                pod = worker.pod_name
                finalizers = {"metadata": {"finalizers": None}}
                with contextlib.suppress(KubeError):
                    self.client.delete("pods", namespace, pod, gracePeriodSeconds=0)
                    self.client.patch("pods", namespace, pod, finalizers)

    def forget_settings(self) -> None:
        """Images, credentials and servers that a test has set."""
        self.images = Images()
        self.role = {}
        self.reachable.clear()

    def next_ip(self) -> str:
        return next(self._addresses)

    def make_sandbox(self, pod: Object, ip: str, hosts: Path) -> int:
        hostname = pod["spec"].get("hostname") or pod["metadata"]["name"]
        addresses = sorted({*self.reachable, urlsplit(self.client.url).netloc})
        pid, listeners = self.containers.sandbox(hostname[:63], ip, addresses)
        self._listeners[pid] = listeners
        for listener, address in zip(listeners, addresses, strict=True):
            threading.Thread(target=_relay, args=(listener, address), daemon=True).start()
        self.names.add(pod, hosts)
        return pid

    def end_sandbox(self, pid: int, pod: Object) -> None:
        self.names.remove(pod)
        for listener in self._listeners.pop(pid, ()):
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.containers.end_sandbox(pid)

    def service_variables(self) -> dict[str, str]:
        host, _, port = urlsplit(self.client.url).netloc.partition(":")
        return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}

    def patch_status(self, pod: Object, status: Object) -> None:
        """Merge a status: conditions by their types."""
        namespace, name = key_of(pod)
        path = path_of("pods", namespace, name, "status")
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        self.client.call("PATCH", path, body, "application/strategic-merge-patch+json")

    def record(self, event: Object) -> None:
        with contextlib.suppress(KubeError):  # the namespace may be about to go
            self.client.create("events", event["metadata"]["namespace"], event)

    def record_once(self, event: Object) -> None:
        """Write the event unless there is the same; a cluster counts such events."""
        key = (event["involvedObject"]["uid"], event["reason"], event["message"])
        if key not in self._recorded:
            self._recorded.add(key)
            self.record(event)

    def _execute(self, namespace: str, pod: str, container: str, command: list[str]) -> tuple[int, str]:
        """Run a command in a container. Returns its exit code and its errors."""
        found = self.worker(namespace, pod).container(container)
        assert found
        assert found.process
        enter = ["nsenter", f"--target={found.process.pid}", "--all", "--", *command]
        done = subprocess.run(enter, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    def _find_log(
        self, namespace: str, pod: str, container: str, previous: bool
    ) -> ContainerLog | LookupError | None:
        try:
            worker = self.worker(namespace, pod)
        except LookupError:
            return LookupError(f'pod "{pod}" not found')
        if worker.pod["spec"].get("nodeName") not in self._nodes:
            return None
        found = worker.container(container)
        if found is None or found.process is None:
            return LookupError(
                f'container "{container}" in pod "{pod}" is waiting to start: ContainerCreating'
            )
        if previous and found.previous_log is None:
            return LookupError(f'previous terminated container "{container}" in pod "{pod}" not found')
        return found.previous_log if previous else found.log


def _relay(listener: socket.socket, address: str) -> None:
    with contextlib.suppress(OSError):
        relay.relay(listener, address)


def _image_parts() -> set[Path]:
    """The folders of Python, of its environment, and of this repository."""
    return {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), Path(__file__).parents[3]}


def _image_mounts() -> list[Mount]:
    """The parts of the image that are in folders of this machine which are empty in containers."""
    hidden = [Path(tempfile.gettempdir()).resolve(), Path("/tmp"), Path("/var/tmp")]
    return [
        Mount(os.fspath(path), os.fspath(path), True)
        for path in _image_parts()
        if any(folder in path.parents for folder in hidden)
    ]
