"""The differences between two requests, by the path of each field."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudtrain.platforms.base import Request

_KEYS = ("ChannelName", "InstanceGroupName", "Key", "Name", "instance_group_name")
"""The fields that identify the items of a list regardless of their order."""


@dataclass(frozen=True)
class Change:
    """A field with two values; None if one of the requests does not have it."""

    path: str
    old: Any
    new: Any


def changes(old: Request, new: Request) -> list[Change]:
    """The fields that differ, by path.

    The job's name is ignored in every field. So is a field that one request omits and that is empty or false in the
    other, because platforms fill in such defaults.
    """
    before, after = dict(fields(old.body)), dict(fields(new.body))
    found = [Change(path, before.get(path), after.get(path)) for path in sorted({*before, *after})]
    names = old.job_name, new.job_name
    return [change for change in found if change.new not in (change.old, _renamed(change.old, *names))]


def _renamed(value: Any, old: str, new: str) -> Any:
    """``value`` with the new job's name instead of the old one."""
    return json.loads(json.dumps(value).replace(old, new))


def fields(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All fields of a request's body that are not empty or false: the path and the value of each."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from fields(item, f"{path}.{key}" if path else key)
    elif isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
        for name, item in _named(value):
            yield from fields(item, f"{path}[{name}]")
    elif value not in (None, False, "", "None", [], ()):
        yield path, value


def _named(items: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    for number, item in enumerate(items):
        key = next((key for key in _KEYS if isinstance(item, Mapping) and key in item), None)
        yield str(item[key]) if key else str(number), item
