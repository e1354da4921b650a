"""Reads Kubernetes objects, which are dicts as in the API's JSON. What is missing is empty, never an error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Protocol

from cloudtrain.contract.documents import LAST_TIME

Object = Mapping[str, Any]

_DAY = 86_400
_LAST_TIME = LAST_TIME - _DAY


class JobObjects(Protocol):
    """All objects of one job, as of one moment: `cloudtrain.platforms.kubernetes.api.job_watch.Snapshot`."""

    @property
    def owner(self) -> Object | None: ...

    @property
    def pods(self) -> Sequence[Object]: ...

    @property
    def events(self) -> Sequence[Object]: ...

    @property
    def gone(self) -> Sequence[Object]:
        """Pods that were deleted while they were watched, as they were last."""
        ...

    @property
    def unseen(self) -> Mapping[str, str]:
        """Why some objects are missing, by plural: the credentials may not list ``events``."""
        ...

    @property
    def problem(self) -> str:
        """Why this is not up to date; empty if it is."""
        ...

    @property
    def workload(self) -> Object | None: ...


def part(found: Object | None, *path: str) -> Any:
    """The value at ``path``; an empty dict if there is none, or it is null."""
    value: Any = found
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return {} if value is None else value


def text(found: Object | None, *path: str) -> str:
    """The string at ``path``; empty if there is none."""
    value = part(found, *path)
    return value if isinstance(value, str) else ""


def number(found: Object | None, *path: str) -> int:
    """The integer at ``path``; 0 if there is none."""
    value = part(found, *path)
    return value if isinstance(value, int) else 0


def items(found: Object | None, *path: str) -> list[Object]:
    """The objects in the list at ``path``."""
    value = part(found, *path)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def name_of(found: Object) -> str:
    return text(found, "metadata", "name")


def annotation(found: Object, name: str) -> str:
    return text(found, "metadata", "annotations", name)


def label(found: Object, name: str) -> str:
    return text(found, "metadata", "labels", name)


def condition(found: Object | None, kind: str) -> Object | None:
    """The condition ``kind`` in the status of an object; None if it has none."""
    return next((one for one in items(found, "status", "conditions") if one.get("type") == kind), None)


def holds(found: Object | None, kind: str) -> Object | None:
    """The condition ``kind`` if its status is True."""
    one = condition(found, kind)
    return one if one is not None and one.get("status") == "True" else None


def when(found: Object | None, *path: str) -> float | None:
    """The time at ``path`` in seconds since the epoch; None if there is none."""
    return parse_time(text(found, *path))


def parse_time(value: str) -> float | None:
    """``2026-11-23T02:47:12Z``, or with microseconds, in seconds since the epoch.

    None for a time that no clock of any time zone shows: annotations are what users write.
    """
    with contextlib.suppress(ValueError):
        moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
        return seconds if 0 <= seconds < _LAST_TIME else None
    return None


def format_time(seconds: float) -> str:
    """The inverse of `parse_time`, in whole seconds."""
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def event_time(event: Object) -> float:
    """When an event happened last; 0 if it does not say."""
    times = (
        when(event, "series", "lastObservedTime"),
        when(event, "lastTimestamp"),
        when(event, "eventTime"),
        when(event, "firstTimestamp"),
        when(event, "metadata", "creationTimestamp"),
    )
    return next((found for found in times if found is not None), 0.0)


def first_event_time(event: Object) -> float:
    """When an event happened for the first time; 0 if it does not say."""
    times = when(event, "firstTimestamp"), when(event, "eventTime")
    return next((found for found in times if found is not None), 0.0) or event_time(event)


class EventIndex:
    """Events by what they are about; the events are given in the order in which they happened."""

    def __init__(self, events: Iterable[Object]) -> None:
        self._by_uid: dict[str, list[Object]] = {}
        self._by_name: dict[str, list[Object]] = {}
        for event in events:
            about = part(event, "involvedObject")
            uid, name = text(about, "uid"), text(about, "name")
            # a tool that reports events may leave out the uid
            (self._by_uid.setdefault(uid, []) if uid else self._by_name.setdefault(name, [])).append(event)

    def about(self, found: Object) -> list[Object]:
        """The events about one object, in the order in which they happened."""
        named = self._by_name.get(name_of(found), [])
        return [*self._by_uid.get(text(found, "metadata", "uid"), ()), *named]
