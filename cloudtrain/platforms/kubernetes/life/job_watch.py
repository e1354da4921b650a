"""The objects of one job, kept in memory while they are being read."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.errors import KubeError, KubeForbidden, KubeTooLarge
from cloudtrain.platforms.kubernetes.api.kinds import EVENT, POD, WORKLOAD, Kind
from cloudtrain.platforms.kubernetes.api.watch import Reflector
from cloudtrain.platforms.kubernetes.labels import QUEUE, WORKLOAD_LABEL, job_selector
from cloudtrain.platforms.kubernetes.life.objects import (
    Snapshot,
    event_time,
    holds,
    is_of,
    parse_time,
    uid_of,
)

IDLE_SECONDS = 30.0
"""Seconds without a reader after which the watches end."""
FRESH_SECONDS = 3.0
"""A list newer than this is used instead of a new one."""
PATIENCE = 300.0
"""How long a server may not respond. The last known state is reported meanwhile."""
REFUSED_PATIENCE = 30.0
"""How long a server may deny what it allowed before: just after its start, it has not loaded all roles."""
MOST_GONE = 1000
"""The maximum number of deleted pods to keep."""
HICCUP = 3.0
"""A connection that is lost for less than this is not reported: the next one continues where it broke."""
TICK = 5.0
"""How often the watches check whether this process was paused, in seconds."""
CATCH_UP = 5.0
"""How long a snapshot waits for the new connections."""
LAG = 0.1
"""Seconds after which an open watch has delivered the changes before it."""
BEHIND = "the job has ended; the last changes of its pods are on their way"

PAUSE = 15.0
"""After a pause or a clock jump of this many seconds, connections are replaced, because they may be dead."""
ENDED = ("Complete", "Completed", "Succeeded", "Failed")
"""The conditions of a Job, a JobSet, a TrainJob or an MPIJob that has ended."""

_OF_METADATA = {"managedFields", "kubectl.kubernetes.io/last-applied-configuration"}
_OF_PODS = {"env", "envFrom", "volumeMounts", "command", "args", "securityContext"}
_OF_PODS |= {"volumes", "affinity", "tolerations", "topologySpreadConstraints"}
_OF_USERS = ("nodeSelector", "labels", "matchLabels")
"""Mappings with keys of the user's choice."""
DEEPEST = 20
LONGEST_TEXT = 4096
"""The maximum length of a text in an event. Kubernetes' own have up to 1,024 characters; the API accepts a megabyte."""
_OF_EVENTS = (
    *("type", "reason", "message", "note", "count", "series"),
    *("firstTimestamp", "lastTimestamp", "eventTime", "involvedObject", "regarding"),
)
_CHILD = r"(?:-(?:node|launcher|worker)-\d+)"


class JobWatch:
    """The objects of one job. Threads may share it.

    The first `snapshot` lists them, which is enough for a command that describes a job once. From the second one on,
    they are watched. The watches end after 30 s without a reader, and restart with the next one.
    """

    def __init__(self, api: Api, kind: Kind, name: str) -> None:
        self.api = api
        self.kind = kind
        self.name = name
        self._lock = threading.RLock()
        self._change = threading.Condition()
        self._changes = 0
        self._seen = threading.local()
        self._gone: deque[dict[str, Any]] = deque(maxlen=MOST_GONE)
        self._deleted: dict[str, Any] | None = None
        self._known: dict[str, Any] | None = None
        """The last known owner, which identifies the job's pods after its deletion."""
        named, ended = f"metadata.name={name}", self._on_deleted_owner
        self._owner = Reflector(api, kind, fields=named, keep=slim, changed=self._on_change, deleted=ended)
        chosen, noted = job_selector(name), self._on_deleted_pod
        self._pods = Reflector(api, POD, labels=chosen, keep=slim, changed=self._on_change, deleted=noted)
        self._events = Reflector(api, EVENT, keep=self._keep_event, changed=self._on_change)
        self._workload: Reflector | None = None
        self._unseen: dict[str, str] = {}
        self._unfinished: dict[str, Any] | None = None
        """The owner before its end."""
        self._uids: set[str] = set()
        self._read_at = time.monotonic()
        self._listed: float | None = None
        self._stop: threading.Event | None = None
        self._ticked = time.monotonic()
        self._reconnected = float("-inf")
        self._offset = _clock_offset()

    def snapshot(self, *, newest: bool = False) -> Snapshot:
        """The job's objects now; with ``newest``, always from a new list, for callers that act on single pods.

        Raises KubeError if the server does not respond or, once it is watched, has not for five minutes.
        """
        with self._lock:
            self._read_at = time.monotonic()
            if self.is_watching:
                self._catch_up()
            elif self._listed is None or newest:
                self._list()
            else:
                self._begin()
            if self.is_watching:
                self._find_workload()
                if self._misses_pods():
                    return self._build(self._problem() or BEHIND, self._unfinished)
            return self._build(self._problem())

    def known(self) -> Snapshot:
        """The job's objects in memory, without a query. Like `snapshot` if there are none yet."""
        with self._lock:
            return self.snapshot() if self._listed is None else self._build("")

    def wait(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for a change since this thread's last snapshot.

        False if nothing has changed. Raises KubeError.
        """
        with self._lock:
            self._read_at = time.monotonic()
            if not self.is_watching:
                self._begin()
        seen = getattr(self._seen, "change", 0)
        with self._change:
            return self._change.wait_for(lambda: self._changes != seen, timeout)

    def close(self) -> None:
        """End the watches now."""
        with self._lock:
            if self._stop:
                self._stop.set()
            for reflector in self._reflectors():
                reflector.stop()

    @property
    def is_watching(self) -> bool:
        """Whether the watches run."""
        return self._stop is not None and not self._stop.is_set()

    def _reflectors(self) -> list[Reflector]:
        every = [self._owner, self._pods, self._events, self._workload]
        return [one for one in every if one is not None and one.kind.plural not in self._unseen]

    def _list(self) -> None:
        self._unseen = {}
        self._owner.list()
        self._pods.list()
        try:
            self._events.list()
        except (KubeForbidden, KubeTooLarge) as error:  # a job can be described without them
            self._unseen[EVENT.plural] = error.message
        self._workload = None
        self._find_workload()
        self._listed = time.monotonic()

    def _find_workload(self) -> None:
        """Start to track the Workload of a job that has a queue: its owner may have appeared since the last call."""
        owner = self._current_owner()
        if owner is None or self._workload or WORKLOAD.plural in self._unseen:
            return
        if QUEUE not in (owner["metadata"].get("labels") or {}):
            return
        try:
            kind = self.api.served(WORKLOAD)
            if kind is None:
                self._unseen[WORKLOAD.plural] = "the cluster does not have Kueue"
                return
            labels = f"{WORKLOAD_LABEL}={owner['metadata']['uid']}"
            workload = Reflector(self.api, kind, labels=labels, keep=slim, changed=self._on_change)
            workload.list()
        except KubeForbidden as error:
            self._unseen[WORKLOAD.plural] = error.message
            return
        self._workload = workload
        if self.is_watching:
            workload.start()

    def _misses_pods(self) -> bool:
        """Whether the job has ended, but the last changes of its pods are missing because their watch is broken."""
        owner, before = self._current_owner(), self._unfinished
        if owner is None or not any(holds(owner, kind) for kind in ENDED):
            self._unfinished = owner
            return False
        if before is None or before["metadata"].get("uid") != owner["metadata"].get("uid"):
            return False  # it had ended before the first list
        time.sleep(LAG)
        connected = self._pods.connected_at
        if connected is None or time.monotonic() - connected < LAG:
            return True
        self._unfinished = None
        return False

    def _begin(self) -> None:
        """Start the watches."""
        if self._listed is None or time.monotonic() - self._listed > FRESH_SECONDS:
            self._list()
        self._stop = threading.Event()
        self._ticked, self._offset = time.monotonic(), _clock_offset()
        for reflector in self._reflectors():
            reflector.start()
        threading.Thread(
            target=self._keep_alive, args=(self._stop,), name="cloudtrain-job-watch", daemon=True
        ).start()

    def _keep_alive(self, stop: threading.Event) -> None:
        """End the watches when there is no reader, and replace connections after a pause."""
        while not stop.wait(TICK):
            with self._lock:
                if stop.is_set():
                    return
                if time.monotonic() - self._read_at > IDLE_SECONDS:
                    self.close()
                    return
                self._notice_pause()

    def _notice_pause(self) -> None:
        """If this process or machine has been suspended since the last look, reconnect every watch."""
        now, offset = time.monotonic(), _clock_offset()
        has_slept = now - self._ticked > TICK + PAUSE or abs(offset - self._offset) > PAUSE
        self._ticked, self._offset = now, offset
        if has_slept:
            self._reconnected = now
            for reflector in self._reflectors():
                reflector.reconnect()

    def _catch_up(self) -> None:
        """After a pause, wait a moment for the changes that happened in it."""
        self._notice_pause()
        until = self._reconnected + CATCH_UP
        while time.monotonic() < until:
            if all(reflector.heard_at > self._reconnected for reflector in self._reflectors()):
                time.sleep(LAG)  # the first changes arrive right after the connection
                self._reconnected = float("-inf")
                return
            time.sleep(0.05)

    def _problem(self) -> str:
        for reflector in (self._owner, self._pods):
            error = reflector.error
            if error is None:
                continue
            lasting = isinstance(error, KubeError) and not error.is_transient
            if reflector.age > (REFUSED_PATIENCE if lasting else PATIENCE):
                raise error
            if reflector.age > HICCUP:
                return f"{error.message}; this is the state of {reflector.age:.0f} s ago"
        return ""

    def _current_owner(self) -> dict[str, Any] | None:
        owners = self._owner.objects()
        return owners[-1] if owners else None

    def _build(self, problem: str, owner: dict[str, Any] | None = None) -> Snapshot:
        self._seen.change = self._changes
        owner = owner or self._current_owner()
        self._known = known = owner or self._known
        # a deleted job of this name may have pods that are still ending
        since = _created(known) if known else ""
        pods = [pod for pod in self._pods.objects() if _created(pod) >= since and is_of(known, pod)]
        workloads = self._workload.objects() if self._workload else []
        self._uids.update(map(uid_of, [*([owner] if owner else []), *pods, *workloads]))
        events = events_of(self.name, self._events.objects(), self._uids, since)
        with self._change:
            gone = [pod for pod in self._gone if _created(pod) >= since and is_of(known, pod)]
        return Snapshot(
            owner,
            tuple(pods),
            tuple(sorted(events, key=event_time)),
            tuple(gone),
            workloads[-1] if workloads else None,
            dict(self._unseen),
            problem,
            None if owner else self._deleted,
        )

    def _keep_event(self, event: dict[str, Any]) -> dict[str, Any] | None:
        about = (event.get("involvedObject") or {}).get("name") or ""
        return slim_event(event) if self.name in about else None

    def _on_deleted_pod(self, pod: dict[str, Any]) -> None:
        with self._change:
            self._gone.append(slim(pod))

    def _on_deleted_owner(self, owner: dict[str, Any]) -> None:
        self._deleted = slim(owner)

    def _on_change(self) -> None:
        with self._change:
            self._changes += 1
            self._change.notify_all()


def _clock_offset() -> float:
    return time.time() - time.monotonic()


def _created(found: Mapping[str, Any]) -> str:
    return str(found["metadata"].get("creationTimestamp") or "")


def events_of(
    name: str, events: Iterable[dict[str, Any]], uids: Collection[str], since: str
) -> Iterator[dict[str, Any]]:
    """The events about the objects of the job ``name``.

    An event refers to its object, and has no labels. A pod that no longer exists is recognised by its name:
    ``NAME-INDEX-RANDOM``.

    Args:
        uids: the uids of all objects of the job that were seen.
        since: when the job was created, in RFC 3339. Older events are about an earlier job of the same name.
    """
    escaped, began = re.escape(name), parse_time(since) or 0.0
    pod = re.compile(rf"{escaped}(?:{_CHILD}?-\d+-[a-z0-9]{{5}}|-launcher(?:-[a-z0-9]{{5}})?|-worker-\d+)")
    owner = re.compile(rf"{escaped}{_CHILD}?")
    for event in events:
        about: Mapping[str, Any] = event.get("involvedObject") or {}
        if about.get("uid") in uids:
            yield event
            continue
        pattern = pod if about.get("kind") == "Pod" else owner
        if pattern.fullmatch(str(about.get("name") or "")) and event_time(event) >= began:
            yield event


def slim(found: dict[str, Any]) -> dict[str, Any]:
    """The object without ``managedFields``, and without the variables, commands and volumes of its pods.

    Variables may hold secrets, too.
    """
    small = {**found, "metadata": _without(found.get("metadata") or {}, _OF_METADATA)}
    if isinstance(found.get("spec"), dict):
        small["spec"] = _without(found["spec"], _OF_PODS)
    return small


def _without(value: Any, names: Collection[str], depth: int = 0) -> Any:
    """``value`` without the fields of these names, to a depth that no object of Kubernetes needs."""
    if depth < DEEPEST and isinstance(value, dict):
        return {
            key: one if key in _OF_USERS else _without(one, names, depth + 1)
            for key, one in value.items()
            if key not in names
        }
    if depth < DEEPEST and isinstance(value, list):
        return [_without(one, names, depth + 1) for one in value]
    return value


def slim_event(event: dict[str, Any]) -> dict[str, Any]:
    """The event without its source, and with texts cut to `LONGEST_TEXT`."""
    metadata = event.get("metadata") or {}
    small = {
        "metadata": {
            name: metadata[name] for name in ("name", "uid", "creationTimestamp") if name in metadata
        },
        **{name: event[name] for name in _OF_EVENTS if event.get(name) is not None},
    }
    return {name: one[:LONGEST_TEXT] if isinstance(one, str) else one for name, one in small.items()}
