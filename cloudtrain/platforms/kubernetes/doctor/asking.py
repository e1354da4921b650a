"""Questions of checks to the cluster: they share one connection, and a denied question is not a failure."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cloudtrain.errors import CloudtrainError, PlatformError
from cloudtrain.platforms.checks import Check, CheckStatus, Finding
from cloudtrain.platforms.kubernetes.api.errors import KubeError, KubeForbidden, KubeNotFound
from cloudtrain.platforms.kubernetes.api.kinds import Kind

if TYPE_CHECKING:
    from cloudtrain.platforms.kubernetes.api.client import Api


class Cluster:
    """The cluster of the checks. Threads share it: what several checks need is asked once."""

    def __init__(self, context: str | None, namespace: str | None) -> None:
        self._where = context, namespace
        self._lock = threading.Lock()
        self._api: Api | CloudtrainError | None = None
        self._lists: dict[str, list[dict[str, Any]] | CloudtrainError] = {}

    @property
    def api(self) -> Api:
        """Its API, which has answered. Raises PlatformError."""
        from cloudtrain.platforms.kubernetes.api.client import Api

        with self._lock:
            if self._api is None:
                try:
                    api = Api.connect(*self._where)
                    api.server_version()
                    self._api = api
                except CloudtrainError as error:
                    self._api = error
            if isinstance(self._api, CloudtrainError):
                raise self._api
            return self._api

    def list(self, kind: Kind) -> list[dict[str, Any]]:
        """All objects of a kind in the namespace. Raises KubeError."""
        api = self.api
        with self._lock:
            if kind.plural not in self._lists:
                try:
                    self._lists[kind.plural] = api.list(kind)[0]
                except CloudtrainError as error:
                    self._lists[kind.plural] = error
            found = self._lists[kind.plural]
        if isinstance(found, CloudtrainError):
            raise found
        return found

    def find(self, kind: Kind, name: str) -> dict[str, Any] | None:
        """One object; None if there is none. Raises KubeError."""
        try:
            return self.api.get(kind, name)
        except KubeNotFound:
            return None


def asked(cluster: Cluster, check: Callable[[Cluster], Finding]) -> Check:
    """``check`` of the cluster; unknown where the user may not look, or the cluster does not answer."""

    def run() -> Finding:
        try:
            cluster.api  # noqa: B018 - raises
        except CloudtrainError:
            return Finding(CheckStatus.UNKNOWN, "the cluster cannot be asked")
        try:
            return check(cluster)
        except KubeForbidden as error:
            return Finding(CheckStatus.UNKNOWN, error.message)
        except KubeError as error:
            return Finding(CheckStatus.UNKNOWN, error.message, error.hint)
        except PlatformError as error:
            return Finding.of(error)

    return run
