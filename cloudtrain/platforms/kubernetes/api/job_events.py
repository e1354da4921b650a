"""The events of one job, among all events of its namespace."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

_CHILD = r"(?:-(?:node|launcher|worker)-\d+)"


def events_of(
    name: str, events: Iterable[dict[str, Any]], uids: Collection[str], since: str
) -> Iterator[dict[str, Any]]:
    """The events about the objects of the job ``name``.

    An event names its object, and no label. A pod that is gone already is known by its name: ``NAME-INDEX-RANDOM``.

    Args:
        uids: of all objects of the job that were seen.
        since: the time at which the job was created, in RFC 3339. Older events are about an earlier job of that name.
    """
    escaped = re.escape(name)
    pod = re.compile(rf"{escaped}(?:{_CHILD}?-\d+-[a-z0-9]{{5}}|-launcher(?:-[a-z0-9]{{5}})?|-worker-\d+)")
    owner = re.compile(rf"{escaped}{_CHILD}?")
    for event in events:
        about: Mapping[str, Any] = event.get("involvedObject") or {}
        if about.get("uid") in uids:
            yield event
            continue
        pattern = pod if about.get("kind") == "Pod" else owner
        if pattern.fullmatch(str(about.get("name") or "")) and time_of(event)[:19] >= since[:19]:
            yield event


def time_of(event: Mapping[str, Any]) -> str:
    """When it happened last, in RFC 3339."""
    series = event.get("series") or {}
    times = (
        *(series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime")),
        *(event.get("firstTimestamp"), (event.get("metadata") or {}).get("creationTimestamp")),
    )
    return str(next((time for time in times if time), ""))
