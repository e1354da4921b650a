"""The objects that match a selector, kept up to date by a watch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from cloudtrain.errors import CloudtrainError
from cloudtrain.platforms.kubernetes.api.client import Api, Keep
from cloudtrain.platforms.kubernetes.api.errors import KubeError, KubeGone
from cloudtrain.platforms.kubernetes.api.kinds import Kind
from cloudtrain.platforms.kubernetes.api.transport import LineStream, backoff

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 15.0
SHORT_WATCH = 1.0
"""In seconds. A watch that ends sooner counts as a failure, and delays the next one."""


class Reflector:
    """A copy of the server's objects, from one list and then watches. Only a lost history requires another list.

    A watch that ends or breaks continues from the last resourceVersion, after a pause that grows while it fails.
    Objects are replaced, never modified, so the results of `objects` do not change later.
    """

    def __init__(
        self,
        api: Api,
        kind: Kind,
        *,
        labels: str = "",
        fields: str = "",
        keep: Keep = lambda found: found,
        changed: Callable[[], object] = lambda: None,
        deleted: Callable[[dict[str, Any]], object] = lambda found: None,
    ) -> None:
        """
        Args:
            keep: returns the part of an object to keep in memory; None to drop the object.
            changed: called after each change, from the thread of the watch.
            deleted: called with the last state of a deleted object, from the thread of the watch, before ``changed``.
        """
        self.kind = kind
        self._api = api
        self._labels = labels
        self._fields = fields
        self._keep = keep
        self._changed = changed
        self._deleted = deleted
        self._lock = threading.Lock()
        self._objects: dict[str, dict[str, Any]] = {}
        self._version = ""
        self._watch: LineStream | None = None
        self._stop: threading.Event | None = None
        self.heard_at = float("-inf")
        """When the server last confirmed the copy, by a list, an open watch or a change; on the monotonic clock."""
        self.connected_at: float | None = None
        """When the current watch began, on the monotonic clock; None while there is none."""
        self.error: CloudtrainError | None = None
        """Why the copy may be out of date; None if it is current."""

    @property
    def is_running(self) -> bool:
        return self._stop is not None and not self._stop.is_set()

    @property
    def age(self) -> float:
        """The seconds since the server last confirmed the copy."""
        return time.monotonic() - self.heard_at

    def objects(self) -> list[dict[str, Any]]:
        """The objects, in the order in which they were created."""
        with self._lock:
            return list(self._objects.values())

    def list(self) -> None:
        """Replace the copy with all objects that the server has now. Raises KubeError."""
        found, version = self._api.list(self.kind, labels=self._labels, fields=self._fields, keep=self._keep)
        kept = {_key(item): item for item in found}
        order = sorted(kept.items(), key=lambda pair: str(pair[1]["metadata"].get("creationTimestamp") or ""))
        with self._lock:
            self._objects = dict(order)
            self._version = version
            self.heard_at = time.monotonic()
            self.error = None
        self._changed()

    def start(self) -> None:
        """Start the watch, in a thread that does not keep the process alive."""
        if not self.is_running:
            self._stop = threading.Event()
            name = f"cloudtrain-watch-{self.kind.plural}"
            threading.Thread(target=self._run, args=(self._stop,), name=name, daemon=True).start()

    def stop(self) -> None:
        """End the watch. Its thread ends soon."""
        if self._stop:
            self._stop.set()
        self.reconnect()

    def reconnect(self) -> None:
        """Replace the watch's connection, which may be dead, by a new one."""
        if watch := self._watch:
            watch.close()

    def _run(self, stop: threading.Event) -> None:
        failures = 0
        must_list = not self._version
        while not stop.is_set():
            began = time.monotonic()
            try:
                if must_list:
                    self.list()
                    must_list = False
                self._follow(stop)
                failures = failures + 1 if time.monotonic() - began < SHORT_WATCH else 0
                pause = None
            except KubeGone:
                failures += must_list or time.monotonic() - began < SHORT_WATCH
                must_list, pause = True, None if failures > 1 else 0.0
            except CloudtrainError as error:
                failures = 1 if time.monotonic() - began > LONGEST_PAUSE else failures + 1
                pause = error.retry_after if isinstance(error, KubeError) else None
                self.error = error
            except Exception as error:  # a thread must not end silently
                failures += 1
                self.error, pause = KubeError(f"the watch of {self.kind.plural} failed: {error!r}"), None
            if failures and not stop.is_set():
                stop.wait(backoff(failures, FIRST_PAUSE, LONGEST_PAUSE) if pause is None else pause)

    def _follow(self, stop: threading.Event) -> None:
        """Run one watch until it ends."""
        with self._api.watch(
            self.kind, resource_version=self._version, labels=self._labels, fields=self._fields
        ) as watch:
            self._watch = watch
            try:
                if stop.is_set():  # `stop` was called meanwhile, and found no connection to close
                    return
                self.heard_at, self.error = time.monotonic(), None
                self.connected_at = self.heard_at
                for change, found in watch.changes():
                    if stop.is_set():
                        return
                    self._take(change, found)
            finally:
                self._watch = self.connected_at = None

    def _take(self, change: str, found: dict[str, Any]) -> None:
        version = (found.get("metadata") or {}).get("resourceVersion")
        if change == "BOOKMARK":
            self.heard_at = time.monotonic()
            self._version = version or self._version
            return
        small = None if change == "DELETED" else self._keep(found)
        with self._lock:
            if small is None:
                self._objects.pop(_key(found), None)
            else:
                self._objects[_key(found)] = small
            self._version = version or self._version
            self.heard_at = time.monotonic()
        if change == "DELETED":
            self._deleted(found)
        self._changed()


def _key(found: dict[str, Any]) -> str:
    metadata = found["metadata"]
    return str(metadata.get("uid") or metadata.get("name"))
