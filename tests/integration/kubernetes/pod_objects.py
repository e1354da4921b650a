"""A job and its pods as a watch has them, for tests that need no API server."""

from __future__ import annotations

import threading
from typing import Any


class Objects:
    """A job and its pods, as a watch has them."""

    def __init__(self, hosts: int) -> None:
        status = {"startTime": "2026-11-23T00:00:00Z", "conditions": []}
        self.owner: dict[str, Any] | None = {
            "kind": "Job",
            "metadata": {"name": "j", "uid": "job"},
            "spec": {"completions": hosts},
            "status": status,
        }
        self.pods: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.gone: list[dict[str, Any]] = []
        self.workload: dict[str, Any] | None = None
        self.unseen: dict[str, str] = {}
        self.problem = ""
        self._changed = threading.Condition()
        self._changes = self._seen = 0

    def add(self, index: int, *, attempt: str = "a", state: str = "running") -> str:
        """A new pod of the host ``j-INDEX``; returns its name."""
        name = f"j-{index}-{attempt}"
        metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-11-23T00:00:00Z"}
        annotations = {"batch.kubernetes.io/job-completion-index": str(index)}
        containers = [{"name": "istio-proxy"}, {"name": "train"}]
        spec = {"restartPolicy": "Never", "hostname": f"j-{index}", "containers": containers}
        pod = {"metadata": {**metadata, "annotations": annotations}, "spec": spec}
        self.pods.append(pod)
        self.put(name, state)
        return name

    def put(self, name: str, state: str) -> None:
        """The kubelet reports a state: ``waiting``, ``running`` or ``terminated``."""
        phase = {"waiting": "Pending", "running": "Running", "terminated": "Succeeded"}[state]
        both = [{"name": "istio-proxy", "state": {"running": {}}}, {"name": "train", "state": {state: {}}}]
        status = {"phase": phase, "containerStatuses": both}
        self.pods = [
            {**pod, "status": status} if pod["metadata"]["name"] == name else pod for pod in self.pods
        ]
        self._notify()

    def remove(self, name: str) -> None:
        self.pods = [pod for pod in self.pods if pod["metadata"]["name"] != name]
        self._notify()

    def end(self) -> None:
        assert self.owner
        complete = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-11-23T00:01:00Z"}
        self.owner = {**self.owner, "status": {"conditions": [complete]}}
        self._notify()

    def _notify(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def snapshot(self) -> Objects:
        self._seen = self._changes
        return self

    def known(self) -> Objects:
        return self

    def wait(self, timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._changes != self._seen, min(timeout, 0.2))
