"""The common part of the tests' controllers: objects that changed, synchronised one after the other."""

from __future__ import annotations

import heapq
import http.client
import threading
import time
from typing import TYPE_CHECKING, Any

from kube_client import KubeError
from kube_informer import Informer
from kube_objects import owner_of

if TYPE_CHECKING:
    from kube_cluster import KubeCluster

Object = dict[str, Any]

AGAIN = 0.3
"""Seconds after which a failed synchronisation is tried again."""


class Controller:
    """Brings each object of one kind towards what it describes. A subclass writes `sync`.

    It synchronises an object when it changes, and when something changes that it controls: see `owned_changed`.
    """

    plural: str
    kind: str

    def __init__(self, cluster: KubeCluster) -> None:
        self.cluster = cluster
        self.client = cluster.bench
        self._due: list[tuple[float, str]] = []
        self._changed = threading.Condition()
        self._closed = False
        self._objects: dict[str, Object] = {}
        self._informer = Informer(self.client, self.plural, self._note)
        self._thread = threading.Thread(target=self._run, name=f"controller of {self.plural}", daemon=True)

    def sync(self, item: Object) -> float | None:
        """Do what is due; seconds until the next time, without any change."""
        raise NotImplementedError

    def gone(self, item: Object) -> None:
        """Called when an object has been deleted."""

    def start(self) -> None:
        self._informer.start()
        self._thread.start()

    def close(self) -> None:
        self._informer.close()
        with self._changed:
            self._closed = True
            self._changed.notify()

    def owned_changed(self, item: Object) -> bool:
        """Called with whatever may have an owner of this kind; whether that owner exists."""
        uid = owner_of(item, self.kind)
        if uid is None:
            return False
        self.enqueue(uid)
        return uid in self._objects

    def enqueue(self, uid: str, seconds: float = 0) -> None:
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, uid))
            self._changed.notify()

    def _note(self, kind: str, item: Object) -> None:
        uid = item["metadata"]["uid"]
        if kind == "DELETED":
            self._objects.pop(uid, None)
            self.gone(item)
        else:
            self._objects[uid] = item
            self.enqueue(uid)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and not (self._due and self._due[0][0] <= time.monotonic()):
                    self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                if self._closed:
                    return
                _, uid = heapq.heappop(self._due)
                self._due = [one for one in self._due if one[1] != uid or one[0] > time.monotonic()]
                heapq.heapify(self._due)
            item = self._objects.get(uid)
            if item is not None:
                self._sync(item)

    def _sync(self, item: Object) -> None:
        uid = item["metadata"]["uid"]
        try:
            seconds = self.sync(item)
        except (KubeError, OSError, http.client.HTTPException) as error:
            if not isinstance(error, KubeError) or error.status != 404:
                self.enqueue(uid, AGAIN)
            return
        if seconds is not None:
            self.enqueue(uid, seconds)
