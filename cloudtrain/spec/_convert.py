"""Validation by msgspec, with errors that name the field and the fix."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from cloudtrain.errors import InvalidJob, nearest

T = TypeVar("T")

_ERROR = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>.*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>.*)`")


def convert(value: Any, kind: type[T], where: str = "") -> T:
    """Convert ``value``, which consists of dicts, lists and scalars, to a ``kind``.

    Args:
        where: the path of ``value`` itself, for messages.

    Raises:
        InvalidJob: ``value`` is not valid. The message starts with the path: ``inputs.train.s3_data: ...``.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        match = _ERROR.fullmatch(str(error))
        what, path = (match["what"], match["path"] or "$") if match else (str(error), "$")
    inside = path.removeprefix("$").replace("[...]", "").lstrip(".")
    place = ".".join(filter(None, [where, inside]))
    unknown = _UNKNOWN.fullmatch(what)
    if unknown:
        struct = _struct_at(kind, inside)
        raise InvalidJob(
            f"unknown field {'.'.join(filter(None, [place, unknown['field']]))!r}",
            hint=nearest(unknown["field"], struct.__struct_fields__),
        )
    what = what[:1].lower() + what[1:].replace("`", "")
    raise InvalidJob(f"{place}: {what}" if place else what)


def _struct_at(kind: Any, place: str) -> Any:
    """The struct type at the path ``place`` below ``kind``."""
    for name in filter(None, re.split(r"[.\[\]]+", place)):
        if _is_struct(kind):
            kind = {field.name: field.type for field in msgspec.structs.fields(kind)}.get(name, kind)
        kind = _struct_in(kind)
    return kind


def _struct_in(kind: Any) -> Any:
    """The struct within ``Optional[...]``, ``list[...]`` or ``dict[...]``."""
    if _is_struct(kind):
        return kind
    inside = (_struct_in(part) for part in getattr(kind, "__args__", ()))
    return next((part for part in inside if _is_struct(part)), kind)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
