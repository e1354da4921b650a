"""Watches all objects of one kind for a controller of the tests: each change is a call."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable
from typing import Any

from kube_client import KubeClient, KubeError, path_of

Object = dict[str, Any]
Changed = Callable[[str, Object], None]
"""Called with ``ADDED``, ``MODIFIED`` or ``DELETED``, and the object."""


class Informer:
    """Lists and watches a resource in all namespaces, again and again until it is closed."""

    def __init__(self, client: KubeClient, plural: str, changed: Changed) -> None:
        self._client = client
        self._path = path_of(plural)
        self._changed = changed
        self._closed = threading.Event()
        self._known: dict[str, Object] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"watch {plural}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()

    @property
    def objects(self) -> list[Object]:
        """All of them, as last seen."""
        with self._lock:
            return list(self._known.values())

    def _run(self) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(KubeError, OSError, http.client.HTTPException, ValueError):
                self._list_and_watch()
            self._closed.wait(0.2)

    def _list_and_watch(self) -> None:
        found = self._client.call("GET", self._path)
        common = {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
        present = {item["metadata"]["uid"]: {**common, **item} for item in found["items"]}
        for uid in set(self._known) - set(present):
            self._note("DELETED", self._known[uid])
        for item in present.values():
            self._note("ADDED", item)
        version = found["metadata"]["resourceVersion"]
        for kind, item in self._client.watch(self._path, resourceVersion=version):
            if kind == "ERROR" or self._closed.is_set():
                return
            self._note(kind, item)

    def _note(self, kind: str, item: Object) -> None:
        with self._lock:
            if kind == "DELETED":
                self._known.pop(item["metadata"]["uid"], None)
            else:
                self._known[item["metadata"]["uid"]] = item
        self._changed(kind, item)
