"""The test bench's own client of a Kubernetes API server: JSON in, JSON out.

It does not belong to what is tested. Its requests carry a header by which the proxy spares them its faults.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

Object = dict[str, Any]

BENCH = "X-Test-Bench"
"""The header of requests that no fault may hit."""

PREFIXES = {
    "jobs": "/apis/batch/v1",
    "networkpolicies": "/apis/networking.k8s.io/v1",
    "roles": "/apis/rbac.authorization.k8s.io/v1",
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1",
    "clusterroles": "/apis/rbac.authorization.k8s.io/v1",
    "clusterrolebindings": "/apis/rbac.authorization.k8s.io/v1",
    "customresourcedefinitions": "/apis/apiextensions.k8s.io/v1",
    "priorityclasses": "/apis/scheduling.k8s.io/v1",
    "storageclasses": "/apis/storage.k8s.io/v1",
    "jobsets": "/apis/jobset.x-k8s.io/v1alpha2",
    "trainjobs": "/apis/trainer.kubeflow.org/v1alpha1",
    "trainingruntimes": "/apis/trainer.kubeflow.org/v1alpha1",
    "clustertrainingruntimes": "/apis/trainer.kubeflow.org/v1alpha1",
    "mpijobs": "/apis/kubeflow.org/v2beta1",
    "workloads": "/apis/kueue.x-k8s.io/v1beta2",
    "localqueues": "/apis/kueue.x-k8s.io/v1beta2",
}
"""Group and version of each plural that is not in the core group."""


class KubeError(Exception):
    """The server refused a request."""

    def __init__(self, status: int, answer: Mapping[str, Any]) -> None:
        super().__init__(f"{status}: {answer.get('message', answer)}")
        self.status = status
        self.reason = answer.get("reason")


def path_of(plural: str, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
    """The path of a resource, such as /apis/batch/v1/namespaces/default/jobs/train/status."""
    prefix = PREFIXES.get(plural, "/api/v1")
    parts = [prefix, *(["namespaces", namespace] if namespace else []), plural]
    return "/".join([*parts, *([name] if name else []), *([subresource] if subresource else [])])


class KubeClient:
    """Requests as the holder of ``token``. Threads may share it; each has its own connection.

    Args:
        patience: seconds for which it tries a request again while the server is down.
    """

    def __init__(
        self, url: str, authority: Path, token: str, *, bench: bool = True, patience: float = 0
    ) -> None:
        self.url = url
        self.address = urlsplit(url).netloc
        self._context = ssl.create_default_context(cafile=str(authority))
        self._headers = {"Authorization": f"Bearer {token}", **({BENCH: "1"} if bench else {})}
        self._own = threading.local()
        self._patience = patience

    def connect(self, timeout: float | None = 30) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.address, context=self._context, timeout=timeout)

    def raw(
        self, method: str, path: str, body: Any = None, content: str = "application/json"
    ) -> tuple[int, bytes]:
        """Status and body of the answer. A connection that the server has closed meanwhile is opened again."""
        data = json.dumps(body).encode() if body is not None else None
        headers = {**self._headers, "Content-Type": content}
        deadline = time.monotonic() + self._patience
        for attempt in itertools.count(1):
            connection = getattr(self._own, "connection", None) or self.connect()
            self._own.connection = connection
            try:
                connection.request(method, path, data, headers)
                answer = connection.getresponse()
                return answer.status, answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                self._own.connection = None
                if attempt > 1:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)
        raise AssertionError

    def call(self, method: str, path: str, body: Any = None, content: str = "application/json") -> Object:
        """The answer.

        Raises:
            KubeError: the server refused.
        """
        status, data = self.raw(method, path, body, content)
        answer: Object = {"message": data.decode(errors="replace")}
        with contextlib.suppress(ValueError):
            answer = json.loads(data)
        if status >= 300:
            raise KubeError(status, answer)
        return answer

    def get(self, plural: str, namespace: str | None, name: str) -> Object:
        return self.call("GET", path_of(plural, namespace, name))

    def find(self, plural: str, namespace: str | None, name: str) -> Object | None:
        """The object; None if there is none."""
        try:
            return self.get(plural, namespace, name)
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    def list(self, plural: str, namespace: str | None = None, **query: str) -> list[Object]:
        """Query: ``labelSelector``, ``fieldSelector``."""
        found: list[Object] = self.call("GET", f"{path_of(plural, namespace)}?{urlencode(query)}")["items"]
        return found

    def create(self, plural: str, namespace: str | None, body: Object) -> Object:
        return self.call("POST", path_of(plural, namespace), body)

    def patch(
        self, plural: str, namespace: str | None, name: str, patch: Object, subresource: str = ""
    ) -> Object:
        """Merge ``patch`` into the object."""
        path = path_of(plural, namespace, name, subresource)
        return self.call("PATCH", path, patch, "application/merge-patch+json")

    def delete(self, plural: str, namespace: str | None, name: str, **options: Any) -> None:
        """Delete it, if it exists. Options: those of DeleteOptions, such as ``gracePeriodSeconds``."""
        with contextlib.suppress(KubeError):
            self.call("DELETE", path_of(plural, namespace, name), options or None)

    def watch(self, path: str, **query: str) -> Iterator[tuple[str, Object]]:
        """Type and object of each event, until the server ends the connection."""
        with contextlib.closing(self.connect(None)) as connection:
            connection.request(
                "GET", f"{path}?{urlencode({'watch': 'true', **query})}", headers=self._headers
            )
            answer = connection.getresponse()
            if answer.status != 200:
                raise KubeError(answer.status, json.loads(answer.read()))
            for line in answer:
                event = json.loads(line)
                yield event["type"], event["object"]
