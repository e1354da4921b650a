"""The cluster's DNS, as the ``/etc/hosts`` of each pod: names of pods behind headless Services."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Object = dict[str, Any]

DOMAIN = "cluster.local"


class Names:
    """Writes the hosts files of running pods again whenever pods or Services change."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[Path, Object]] = {}
        """File and pod, by the pod's UID."""
        self._lock = threading.Lock()

    def add(self, pod: Object, path: Path) -> None:
        path.touch()
        with self._lock:
            self._files[pod["metadata"]["uid"]] = (path, pod)

    def remove(self, pod: Object) -> None:
        with self._lock:
            self._files.pop(pod["metadata"]["uid"], None)

    def update(self, pods: Iterable[Object], services: Iterable[Object]) -> None:
        records = list(_records(list(pods), list(services)))
        with self._lock:
            for path, pod in self._files.values():
                text = _hosts_file(pod, records)
                if path.read_text() != text:
                    with open(path, "r+") as file:  # in place: the file is mounted
                        file.write(text)
                        file.truncate()


def _records(pods: list[Object], services: list[Object]) -> Iterable[tuple[str, str, str, str]]:
    """Namespace, host name, Service and address of each name that the DNS knows; no host name: the Service itself."""
    for service in services:
        spec, namespace = service["spec"], service["metadata"]["namespace"]
        selector = spec.get("selector")
        if spec.get("clusterIP") != "None" or not selector:
            continue
        name = service["metadata"]["name"]
        for pod in pods:
            labels, status = pod["metadata"].get("labels") or {}, pod.get("status") or {}
            if (
                pod["metadata"]["namespace"] == namespace
                and selector.items() <= labels.items()
                and status.get("podIP")
                and status.get("phase") in ("Pending", "Running")
                and (spec.get("publishNotReadyAddresses") or _is_ready(status))
            ):
                yield namespace, "", name, status["podIP"]
                if pod["spec"].get("subdomain") == name and pod["spec"].get("hostname"):
                    yield namespace, pod["spec"]["hostname"], name, status["podIP"]


def _is_ready(status: Object) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ())


def _hosts_file(pod: Object, records: list[tuple[str, str, str, str]]) -> str:
    spec, namespace = pod["spec"], pod["metadata"]["namespace"]
    hostname, service = spec.get("hostname") or pod["metadata"]["name"], spec.get("subdomain")
    searches = (spec.get("dnsConfig") or {}).get("searches") or []
    own = f"{hostname}.{service}.{namespace}.svc.{DOMAIN} {hostname}" if service else hostname
    lines = ["127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost", f"{pod['status']['podIP']}\t{own}"]
    for where, name, behind, ip in records:
        full = f"{name}.{behind}.{where}" if name else f"{behind}.{where}"
        known = [f"{full}.svc.{DOMAIN}", f"{full}.svc", full]
        if where == namespace:
            known.append(full.removesuffix(f".{where}"))
        if name and f"{behind}.{where}.svc.{DOMAIN}" in searches:
            known.append(name)
        lines.append(f"{ip}\t{' '.join(known)}")
    return "\n".join(lines) + "\n"
