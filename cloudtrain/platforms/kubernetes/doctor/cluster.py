"""The cluster that the checks share, and findings.

A denied question is not a failure: what the user may not see is unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from cloudtrain.errors import CloudtrainError, PlatformError
from cloudtrain.platforms.checks import Check, CheckStatus, Finding
from cloudtrain.platforms.kubernetes.api.errors import KubeError, KubeForbidden, KubeNotFound
from cloudtrain.platforms.kubernetes.api.kinds import Kind

if TYPE_CHECKING:
    from cloudtrain.platforms.kubernetes.api.client import Api

ok = partial(Finding, CheckStatus.OK)
warning = partial(Finding, CheckStatus.WARNING)
failed = partial(Finding, CheckStatus.FAILED)
unknown = partial(Finding, CheckStatus.UNKNOWN)


class Cluster:
    """The cluster of the checks. Threads share it: what several checks need is requested once."""

    def __init__(self, context: str | None, namespace: str | None) -> None:
        self._where = context, namespace
        self._lock = threading.Lock()
        self._known: dict[object, Any] = {}

    def _once(self, key: object, ask: Callable[[], Any]) -> Any:
        with self._lock:
            if key not in self._known:
                try:
                    self._known[key] = ask()
                except CloudtrainError as error:
                    self._known[key] = error
            found = self._known[key]
        if isinstance(found, CloudtrainError):
            raise found
        return found

    @property
    def api(self) -> Api:
        """Its API, which has answered. Raises PlatformError."""
        found: Api = self._once("api", self._connect)
        return found

    def _connect(self) -> Api:
        from cloudtrain.platforms.kubernetes.api.client import Api

        api = Api.connect(*self._where)
        api.server_version()
        return api

    def list(self, kind: Kind) -> list[dict[str, Any]]:
        """All objects of a kind in the namespace. Raises KubeError."""
        api = self.api
        found: list[dict[str, Any]] = self._once(kind.plural, lambda: api.list(kind)[0])
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
            _ = cluster.api
        except CloudtrainError:
            return unknown("the cluster does not answer")
        try:
            return check(cluster)
        except KubeError as error:
            return unknown(error.message, "" if isinstance(error, KubeForbidden) else error.hint)
        except PlatformError as error:
            return Finding.of(error)

    return run
