"""A cluster for a worker's tests: the real API server, a proxy before it, nodes, a scheduler, and controllers.

Pods are real processes in namespaces of this machine, with real volumes, real names, real signals and real logs. A test
gets it by the fixture ``kubernetes``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from kube_client import KubeClient, KubeError, path_of
from kube_controller import Controller
from kube_informer import Informer
from kube_jobs import JobController
from kube_kubelet import Kubelet
from kube_nodes import Node, choose_node
from kube_objects import condition, event, is_finished
from kube_proxy import KubeProxy
from kube_server import USERS, KubeServer

Object = dict[str, Any]

NODES = (Node("node-1"), Node("node-2"))
"""Two machines without GPUs. A test adds others."""


class KubeCluster:
    """Use it as a context manager."""

    def __init__(self, server: KubeServer) -> None:
        self.server = server
        self.nodes: dict[str, Node] = {}
        self._controllers: dict[type[Controller], Controller] = {}
        self._unscheduled = threading.Event()
        self._assumed: dict[str, str] = {}
        """The nodes of pods that the scheduler has placed: the informer hears of it later."""
        self._closed = False

    def __enter__(self) -> KubeCluster:
        with ExitStack() as stack:
            self.proxy = stack.enter_context(KubeProxy(self.server))
            self.bench = KubeClient(self.proxy.url, self.server.authority, USERS["bench"][0])
            folder = self.server.folder / "nodes"
            folder.mkdir()
            token = USERS["bench"][0]
            client = KubeClient(self.proxy.url, self.server.authority, token, patience=60)
            self.kubelet = stack.enter_context(Kubelet(client, folder, self.server.certificates))
            for node in NODES:
                self.add_node(replace(node))
            self._pods = Informer(self.bench, "pods", self._pod_changed)
            self._services = Informer(self.bench, "services", lambda *_: self._update_names())
            stack.callback(self._close)
            self.start_controller(JobController)
            self._pods.start()
            self._services.start()
            threading.Thread(target=self._schedule, name="scheduler", daemon=True).start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _close(self) -> None:
        self._closed = True
        self._unscheduled.set()
        for part in (self._pods, self._services, *self._controllers.values()):
            part.close()

    def start_controller(self, kind: type[Controller]) -> None:
        """Start a controller, such as that of JobSets, unless it runs."""
        if kind not in self._controllers:
            self._controllers[kind] = kind(self)
            self._controllers[kind].start()

    def reset(self, namespace: str) -> None:
        """After a test: no more faults, the nodes as at the start, and the namespace is deleted."""
        self.proxy.faults.clear()
        self.proxy.requests.clear()
        if not self.server.daemons.is_alive("kube-apiserver"):
            self.server.start_apiserver()
        self.server.wait()
        self.kubelet.kill_namespace(namespace)
        self.bench.delete("namespaces", None, namespace)
        self.kubelet.forget_settings()
        for name in [name for name, node in self.nodes.items() if node not in NODES]:
            self.remove_node(name)
        for node in NODES:
            if node.name not in self.nodes:
                self.add_node(replace(node))

    # Nodes

    def add_node(self, node: Node) -> None:
        body, status = node.to_object(self.kubelet.port)
        self.bench.create("nodes", None, body)
        self.bench.patch("nodes", None, node.name, {"status": status}, "status")
        taint = {"spec": {"taints": node.taints or None}}  # a new node has one until it is ready
        self.bench.patch("nodes", None, node.name, taint)
        self.nodes[node.name] = node
        self.kubelet.add_node(node.name)
        self._unscheduled.set()

    def remove_node(self, name: str) -> None:
        del self.nodes[name]
        self.bench.delete("nodes", None, name)

    def lose_node(self, name: str) -> None:
        """A machine disappears without a report, and none of its logs can be read. See `give_up_node`."""
        self.nodes[name].up = False
        self.kubelet.lose_node(name)

    def give_up_node(self, name: str) -> None:
        """Do as the cluster does minutes later: taint the node, delete its pods, and collect them."""
        unknown = condition("Ready", False, "NodeStatusUnknown", "Kubelet stopped posting node status.")
        self.bench.patch(
            "nodes", None, name, {"status": {"conditions": [{**unknown, "status": "Unknown"}]}}, "status"
        )
        for pod in self.bench.list("pods", None, fieldSelector=f"spec.nodeName={name}"):
            if is_finished(pod):
                continue
            taint = "Taint manager: deleting due to NoExecute taint"
            self._disrupt(pod, "DeletionByTaintManager", taint)
            self.kubelet.patch_status(pod, {"phase": "Failed"})
            self._delete(pod, 0)
        self.bench.delete("nodes", None, name)
        self.nodes.pop(name)

    # Pods

    def evict_under_pressure(self, namespace: str, pod: str, message: str = "") -> None:
        """The kubelet evicts a pod because its node runs low on something."""
        text = message or "The node was low on resource: ephemeral-storage."
        self.kubelet.worker(namespace, pod).evict(text)

    def preempt(self, namespace: str, name: str) -> None:
        """The scheduler takes a pod's place for a more important one."""
        pod = self.bench.get("pods", namespace, name)
        scheduler = "default-scheduler"
        why = f"{scheduler}: preempting to accommodate a higher priority pod"
        self._disrupt(pod, "PreemptionByScheduler", why)
        self.record(
            event(pod, "Preempted", "Preempted by a pod on its node", warning=True, component=scheduler)
        )
        self._delete(pod, None)

    def kill_for_memory(self, namespace: str, pod: str, container: str = "") -> None:
        """The kernel kills a container that uses more memory than its limit."""
        self.kubelet.worker(namespace, pod).kill("OOMKilled", container)

    def log(self, namespace: str, pod: str, container: str = "") -> str:
        """The output of a container so far."""
        worker = self.kubelet.worker(namespace, pod)
        found = worker.container(container) if container else worker.containers[0]
        assert found
        return found.log.text

    def _disrupt(self, pod: Object, reason: str, message: str) -> None:
        target = condition("DisruptionTarget", True, reason, message)
        self.kubelet.patch_status(pod, {"conditions": [target]})

    def _delete(self, pod: Object, grace: int | None) -> None:
        options: dict[str, Any] = {"preconditions": {"uid": pod["metadata"]["uid"]}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        self.bench.delete("pods", pod["metadata"]["namespace"], pod["metadata"]["name"], **options)

    # Events

    def record(self, event: Object) -> None:
        self.kubelet.record(event)

    def record_once(self, event: Object) -> None:
        self.kubelet.record_once(event)

    def _pod_changed(self, kind: str, pod: Object) -> None:
        self.kubelet.pod_changed(kind, pod)
        self._update_names()
        for controller in list(self._controllers.values()):
            changed = getattr(controller, "pod_changed", controller.owned_changed)
            if kind != "DELETED":
                changed(pod)
            else:
                controller.owned_changed(pod)
        self._unscheduled.set()

    def _update_names(self) -> None:
        self.kubelet.names.update(self._pods.objects, self._services.objects)

    # Scheduler

    def _schedule(self) -> None:
        while not self._closed:
            self._unscheduled.wait()
            self._unscheduled.clear()
            for pod in self._pods.objects:
                if not pod["spec"].get("nodeName") and not is_finished(pod):
                    try:
                        self._place(pod)
                    except (KubeError, OSError):  # it has gone, or the server has: it comes again
                        continue

    def _place(self, pod: Object) -> None:
        if pod["metadata"].get("deletionTimestamp"):  # as the collector of pods does: no kubelet reports it
            self.kubelet.patch_status(pod, {"phase": "Failed"})
            return
        if pod["spec"].get("schedulingGates"):
            self._say_unscheduled(
                pod, "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"
            )
            return
        node, why = choose_node(pod, list(self.nodes.values()), list(self._placed_pods()))
        if node is None:
            self.record_once(event(pod, "FailedScheduling", why, warning=True, component="default-scheduler"))
            self._say_unscheduled(pod, "Unschedulable", why)
            return
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        target = {"apiVersion": "v1", "kind": "Node", "name": node.name}
        body = {"metadata": {"name": name, "uid": pod["metadata"]["uid"]}, "target": target}
        self.bench.call("POST", path_of("pods", namespace, name, "binding"), body)
        self._assumed[pod["metadata"]["uid"]] = node.name
        message = f"Successfully assigned {namespace}/{name} to {node.name}"
        self.record(event(pod, "Scheduled", message, component="default-scheduler"))

    def _placed_pods(self) -> Iterator[Object]:
        for pod in self._pods.objects:
            node = pod["spec"].get("nodeName") or self._assumed.get(pod["metadata"]["uid"])
            if node and not is_finished(pod):
                yield {**pod, "spec": {**pod["spec"], "nodeName": node}}

    def _say_unscheduled(self, pod: Object, reason: str, message: str) -> None:
        found = (pod.get("status") or {}).get("conditions") or []
        if not any(one["type"] == "PodScheduled" and one.get("message") == message for one in found):
            self.kubelet.patch_status(
                pod, {"conditions": [condition("PodScheduled", False, reason, message)]}
            )
