"""Fields that a server of 1.20 drops, remembered and added back when the object is read.

A dropped field is one that a request contains and its answer does not. So no list of fields is needed, and a test may
use those of any later version. What the server would do with such a field, the controllers of the tests do.
"""

from __future__ import annotations

import copy
from typing import Any

Object = dict[str, Any]

KINDS = frozenset(("Job", "Pod", "Service", "NetworkPolicy", "Node", "PersistentVolumeClaim"))
"""Kinds of later versions. The server drops from a custom resource what its definition lacks, rightly."""


class FieldMemory:
    def __init__(self) -> None:
        self._dropped: dict[str, Any] = {}
        """By the UID of the object."""

    def note(self, sent: Object, answer: Object, *, status: bool, whole: bool) -> bool:
        """Note what is missing in the answer; whether that is a change, of which the server knows nothing.

        Args:
            sent: the body of the request.
            answer: the object as the server has stored it.
            status: the request was for the subresource ``status``: the server ignores all else.
            whole: ``sent`` is the whole object, not a patch.
        """
        uid = answer.get("metadata", {}).get("uid")
        if uid is None or answer.get("kind") not in KINDS:
            return False
        dropped = self._dropped.setdefault(uid, {})
        before = copy.deepcopy(dropped)
        for part in ("status",) if status else ("spec",):
            if whole:
                dropped.pop(part, None)
            if part in sent:
                _note(dropped, {part: sent[part]}, answer)
        return dropped != before

    def restore(self, answer: Object) -> Object:
        """Add the dropped fields to an object or a list of objects, in place."""
        for item in answer.get("items") or ():
            self._restore(item)
        self._restore(answer)
        return answer

    def _restore(self, item: Any) -> None:
        if isinstance(item, dict):
            dropped = self._dropped.get((item.get("metadata") or {}).get("uid", ""))
            if dropped:
                _add(item, dropped)


def _note(dropped: Object, sent: Object, kept: Object) -> None:
    for name, value in sent.items():
        if value is None:
            dropped.pop(name, None)
        elif name not in kept:
            if value not in ({}, [], ""):
                dropped[name] = copy.deepcopy(value)
        elif isinstance(value, dict) and isinstance(kept[name], dict):
            _note(dropped.setdefault(name, {}), value, kept[name])
        elif isinstance(value, list) and isinstance(kept[name], list):
            dropped[name] = _in_list(value, kept[name])
        else:
            dropped.pop(name, None)


def _in_list(sent: list[Any], kept: list[Any]) -> dict[int, Object]:
    """Missing fields of the elements of a list, by their index."""
    found: dict[int, Object] = {}
    if len(sent) == len(kept):
        for index, (one, other) in enumerate(zip(sent, kept, strict=True)):
            if isinstance(one, dict) and isinstance(other, dict):
                _note(found.setdefault(index, {}), one, other)
    return found


def _add(item: Any, dropped: Any) -> None:
    for name, value in dropped.items():
        if isinstance(item, list):
            if isinstance(name, int) and name < len(item):
                _add(item[name], value)
        elif isinstance(item, dict):
            if name not in item:
                if not _is_empty(value):
                    item[name] = copy.deepcopy(value)
            elif isinstance(value, dict):
                _add(item[name], value)


def _is_empty(value: Any) -> bool:
    """Whether nothing was dropped below: all that a list's indexes hold, or an object's fields."""
    if isinstance(value, dict):
        return (
            not value or any(isinstance(name, int) for name in value) or all(map(_is_empty, value.values()))
        )
    return False
