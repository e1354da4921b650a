"""Requests to the API server of one context, in one namespace. Objects are plain dicts: no field is lost."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from cloudtrain.platforms.kubernetes.api import kinds
from cloudtrain.platforms.kubernetes.api.errors import (
    KubeAlreadyExists,
    KubeError,
    KubeForbidden,
    KubeGone,
    KubeNotFound,
    KubeTooLarge,
)
from cloudtrain.platforms.kubernetes.api.kinds import Kind, kind_of
from cloudtrain.platforms.kubernetes.api.kubeconfig import login
from cloudtrain.platforms.kubernetes.api.transport import ATTEMPTS, Call, LineStream, Transport

if TYPE_CHECKING:
    from cloudtrain.platforms.kubernetes.api.connection import Connection

Objects = list[dict[str, Any]]
Texts = list[str]

PAGE = 500
"""The maximum number of objects in one response to a list."""
MOST_OBJECTS = 100_000
"""The maximum number of objects of one list in memory."""

Keep = Callable[[dict[str, Any]], "dict[str, Any] | None"]
"""Returns the part of an object to keep in memory; None to drop the object."""
WATCH_SECONDS = 290
IDLE_SECONDS = 100.0
"""A watch that is silent for longer is dead: the server sends a bookmark every minute."""
LOG_IDLE_SECONDS = 300.0
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""The content type of a response with only the metadata of an object."""
CREATE_ID = "cloudtrain/create-id"
"""The annotation with which a create whose response was lost recognises its own object."""


class Api:
    """The API server of one context. Threads may share it."""

    def __init__(self, connection: Connection, namespace: str | None = None) -> None:
        self._connection = connection
        self._transport = Transport(connection)
        self._lock = threading.Lock()
        self._served: dict[tuple[str, str], Kind | None] = {}
        self.context: str = connection.login.context
        self.namespace: str = namespace or connection.login.namespace

    @classmethod
    def connect(cls, context: str | None = None, namespace: str | None = None) -> Api:
        """An API for a context of the kubeconfig, by default the current one, or for the pod that this runs in.

        Its first request opens the connection.

        Raises:
            PlatformError: there is no such context, its credentials cannot be read, or a package is missing.
        """
        from cloudtrain.platforms.kubernetes.api.connection import open_connection

        return cls(open_connection(login(context)), namespace)

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self._connection.server

    @property
    def method(self) -> str:
        """How the context authenticates: ``a token``, ``the program aws``."""
        return self._connection.method

    def now(self) -> float:
        """The time of the server's clock, which sets the times of its objects. This machine's clock may be wrong."""
        return time.time() + self._transport.ahead

    def close(self) -> None:
        """Close the idle connections."""
        self._connection.http.close()

    def get(self, kind: Kind, name: str) -> dict[str, Any]:
        """Raises KubeNotFound, KubeForbidden, or another KubeError."""
        return self._transport.json(self._call("get", kind, name))

    def list(
        self, kind: Kind, *, labels: str = "", fields: str = "", keep: Keep = lambda found: found
    ) -> tuple[Objects, str]:
        """All objects that match the selectors, and the resourceVersion to watch from.

        Raises KubeTooLarge if too many are kept, or another KubeError.
        """
        selectors = {"labelSelector": labels, "fieldSelector": fields}
        for _ in range(3):  # the continuation of a long list may expire: start over
            try:
                return self._pages(kind, selectors, keep)
            except KubeGone as error:
                gone = error
        raise gone

    def _pages(self, kind: Kind, selectors: Mapping[str, str], keep: Keep) -> tuple[Objects, str]:
        found: Objects = []
        token, limit = "", PAGE
        while True:
            params = {**selectors, "limit": limit, "continue": token}
            try:
                page = self._transport.json(self._call("list", kind, params=params))
            except KubeTooLarge:
                if limit == 1:
                    raise
                limit = max(1, limit // 10)
                continue
            items, metadata = page.get("items") or [], page.get("metadata") or {}
            is_list = isinstance(items, list) and isinstance(metadata, dict)
            if not is_list or not all(isinstance(item, dict) for item in items):
                what = "it answered with something else than a list"
                raise KubeError(f"{self.server} is not an API server: {what}")
            for item in items:
                kept = keep({"apiVersion": kind.api_version, "kind": kind.kind, **item})
                if kept is not None:
                    found.append(kept)
            if len(found) > MOST_OBJECTS:
                raise KubeTooLarge(f"there are more than {MOST_OBJECTS:,} {kind.plural} here")
            token = metadata.get("continue") or ""
            if not token:
                return found, str(metadata.get("resourceVersion") or "")

    def create(
        self,
        obj: Mapping[str, Any],
        *,
        dry_run: bool = False,
        only_metadata: bool = False,
        warnings: Texts | None = None,
    ) -> dict[str, Any]:
        """Create an object, and return it as the server has it.

        If the response is lost, the server is queried for the object, so that it is never created twice. A caller that
        needs to recognise the object itself sets the annotation `CREATE_ID`.

        Args:
            dry_run: whether to only admit and validate it, with quotas and webhooks, and not store it.
            only_metadata: whether to return only its metadata, so that the server does not return a megabyte of files.
            warnings: the server's warnings are appended to it.

        Raises:
            KubeAlreadyExists: there is another object of this name.
            KubeInvalid: a schema, a webhook, a quota or a policy rejects it.
        """
        kind = kind_of(obj)
        metadata = dict(obj.get("metadata") or {})
        name = metadata.get("name", "")
        annotations = metadata.get("annotations") or {}
        mark = annotations.get(CREATE_ID) or uuid.uuid4().hex
        if name and kind != kinds.ACCESS_REVIEW:
            metadata["annotations"] = {**annotations, CREATE_ID: mark}
        body = {**obj, "metadata": metadata}
        params = {"fieldManager": "cloudtrain", **({"dryRun": "All"} if dry_run else {})}
        call = self._call("create", kind, name, params=params, body=body)
        # a repeated create with only a generateName could create a second object
        call.is_repeatable = bool(name) or dry_run or kind == kinds.ACCESS_REVIEW
        if only_metadata:
            call.accept = METADATA
        if warnings is not None:
            call.warnings = warnings
        try:
            answer = self._transport.json(call)
            return {**answer, "apiVersion": kind.api_version, "kind": kind.kind} if only_metadata else answer
        except KubeAlreadyExists as exists:
            # even if no response was lost: a proxy may have sent the request twice
            try:
                found = self.get(kind, name)
            except (KubeForbidden, KubeNotFound):
                raise exists from None
            if (found["metadata"].get("annotations") or {}).get(CREATE_ID) != mark:
                raise
            return found

    def patch(self, kind: Kind, name: str, patch: Mapping[str, Any]) -> dict[str, Any]:
        """Apply a JSON merge patch, and return the object. Raises KubeNotFound, KubeConflict, KubeInvalid."""
        params = {"fieldManager": "cloudtrain"}
        merge = "application/merge-patch+json"
        return self._transport.json(
            self._call("patch", kind, name, params=params, body=patch, content_type=merge)
        )

    def delete(self, kind: Kind, name: str, *, foreground: bool = True, uid: str | None = None) -> None:
        """Delete an object and, through the garbage collector, everything that it owns.

        Args:
            foreground: whether the object exists until everything that it owns is deleted.
            uid: delete it only if it has this uid, so that no other object of this name is deleted.

        Raises:
            KubeNotFound: it does not exist, or not any longer.
            KubeConflict: another object has this name now.
        """
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground" if foreground else "Background",
        }
        if uid:
            body["preconditions"] = {"uid": uid}
        call = self._call("delete", kind, name, body=body)
        try:
            self._transport.json(call)
        except KubeNotFound:
            if not call.lost:
                raise

    def evict(self, pod: str) -> None:
        """Request the eviction of a pod. Raises KubeNotFound; KubeError if a PodDisruptionBudget forbids it."""
        version = "v1" if self.server_version()[:2] >= (1, 22) else "v1beta1"
        body = {
            "apiVersion": f"policy/{version}",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.namespace},
        }
        self._transport.json(self._call("create", kinds.POD, pod, "eviction", body=body))

    def watch(self, kind: Kind, *, resource_version: str, labels: str = "", fields: str = "") -> LineStream:
        """The changes since ``resource_version``, over one connection that the server ends after `WATCH_SECONDS`.

        It does not retry: see `Reflector`.

        Raises:
            KubeGone: the server no longer has the changes since then.
        """
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "labelSelector": labels,
            "fieldSelector": fields,
            "timeoutSeconds": WATCH_SECONDS,
        }
        return self._transport.stream(
            self._call("watch", kind, params=params, attempts=1, silence=IDLE_SECONDS)
        )

    def pod_log(
        self,
        pod: str,
        container: str,
        *,
        follow: bool = False,
        since: float | None = None,
        tail: int | None = None,
        timestamps: bool = True,
        idle: float = LOG_IDLE_SECONDS,
        attempts: int = ATTEMPTS,
    ) -> LineStream:
        """The lines of a container's log, with their line ends.

        Args:
            since: only lines from this time on, in seconds since the epoch. Servers round it down to a second.
            tail: only this many lines from the end.
            timestamps: begin each line with its time in RFC 3339, and a space.
            idle: the seconds without a line after which the stream fails with KubeUnreachable.
            attempts: how often the request is sent if it fails with a transient error.

        Raises:
            KubeNotFound: there is no such pod.
            KubeInvalid: the container has not started yet.
        """
        params: dict[str, Any] = {"container": container, "timestamps": str(timestamps).lower()}
        if follow:
            params["follow"] = "true"
        if since is not None:
            params["sinceTime"] = datetime.fromtimestamp(since, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        if tail is not None:
            params["tailLines"] = tail
        call = self._call("get", kinds.POD, pod, "log", params=params, attempts=attempts, silence=idle)
        return self._transport.stream(call)

    def execute(self, pod: str, container: str, command: Sequence[str]) -> None:
        """Run a command in a container, and wait for its end. The request is never repeated.

        Raises KubeNotFound, KubeForbidden; KubeError if the command fails, or its program does not exist.
        """
        from cloudtrain.platforms.kubernetes.api.execution import HANDSHAKE, wait_for_command

        params = {"container": container, "command": tuple(command), "stderr": "true", "stdout": "true"}
        call = self._call("get", kinds.POD, pod, "exec", params=params, headers=HANDSHAKE, attempts=1)
        wait_for_command(self._transport.upgraded(call), pod)

    def allowed(self, verb: str, kind: Kind, subresource: str = "") -> bool:
        """Whether the credentials allow ``verb`` on this kind in the namespace. Queries the server."""
        attributes = {
            "verb": verb,
            "group": kind.group,
            "version": kind.version,
            "resource": kind.plural,
            **({"namespace": self.namespace} if kind.namespaced else {}),
            **({"subresource": subresource} if subresource else {}),
        }
        review = {
            "apiVersion": kinds.ACCESS_REVIEW.api_version,
            "kind": kinds.ACCESS_REVIEW.kind,
            "spec": {"resourceAttributes": attributes},
        }
        return bool((self.create(review).get("status") or {}).get("allowed"))

    def has(self, kind: Kind) -> bool:
        """Whether the cluster has this kind in this version."""
        return self.served(kind) == kind

    def served(self, kind: Kind) -> Kind | None:
        """This kind at its version if the cluster has that, else at the cluster's preferred version; or None."""
        key = (kind.group, kind.kind)
        with self._lock:
            if key in self._served:
                return self._served[key]
        found = self._discover(kind)
        with self._lock:
            self._served[key] = found
        return found

    def _discover(self, kind: Kind) -> Kind | None:
        if not kind.group:
            return kind
        try:
            group = self._transport.json(Call("get", address=f"/apis/{kind.group}"))
        except KubeNotFound:
            return None
        offered = [str(version.get("version")) for version in group.get("versions") or []]
        preferred = str((group.get("preferredVersion") or {}).get("version") or "")
        order = [kind.version, preferred, *offered]
        for version in dict.fromkeys(version for version in order if version in offered):
            found = replace(kind, version=version)
            try:
                resources = self._transport.json(Call("get", address=found.root)).get("resources") or []
            except KubeNotFound:
                continue
            if any(resource.get("kind") == kind.kind for resource in resources):
                return found
        return None

    def server_version(self) -> tuple[int, int, str]:
        """The server's version: major, minor, and the full text such as ``v1.33.1-eks-123``. Raises KubeError."""
        answer = self._transport.json(Call("get", address="/version"))
        numbers = ["".join(filter(str.isdigit, str(answer.get(key)))) for key in ("major", "minor")]
        major, minor = (int(number or 0) for number in numbers)
        return major, minor, str(answer.get("gitVersion") or "")

    def _call(self, verb: str, kind: Kind, name: str = "", subresource: str = "", **more: Any) -> Call:
        return Call(verb, kind, name, self.namespace if kind.namespaced else "", subresource, **more)
