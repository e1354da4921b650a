"""Describes types and values in plain English, for messages about job files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import inspect

LONGEST = 60
"""Characters of a text that a message shows."""
QUOTE = "Put it in quotes to make it text."


def expected(kind: inspect.Type) -> str:
    """The values that a field of type ``kind`` accepts.

    >>> expected(inspect.type_info(int | None))
    'a whole number'
    """
    if isinstance(kind, inspect.UnionType):
        parts = [part for part in kind.types if not isinstance(part, inspect.NoneType)]
        return " or ".join(dict.fromkeys(map(expected, parts)))
    if isinstance(kind, inspect.LiteralType):
        return _one_of(sorted("false" if value is False else str(value) for value in kind.values))
    if isinstance(kind, inspect.BoolType):
        return "true or false"
    if isinstance(kind, (inspect.IntType, inspect.FloatType)):
        return _number(kind)
    if isinstance(kind, inspect.StrType):
        return _text(kind)
    if isinstance(kind, inspect.ListType):
        return "a list"
    return "a mapping"


def _number(kind: inspect.IntType | inspect.FloatType) -> str:
    name = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
    if kind.ge is not None and kind.le is not None:
        return f"{name} from {kind.ge:g} to {kind.le:g}"
    if kind.ge is not None:
        return f"{name} of at least {kind.ge:g}"
    return f"{name} above {kind.gt:g}" if kind.gt is not None else name


def _text(kind: inspect.StrType) -> str:
    choices = re.fullmatch(r"\^\(([\w|]+)\)\$", kind.pattern or "")
    if choices:
        return _one_of(choices[1].split("|"))
    return f"text that matches {kind.pattern}" if kind.pattern else "text"


def _one_of(choices: Sequence[str]) -> str:
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def given(value: Any, *, secret: bool = False) -> str:
    """A description of ``value``: the value itself unless it is long or ``secret``.

    >>> given(True), given([1, 2]), given("many"), given(None)
    ('true', 'a list', "'many'", 'nothing')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return "a number" if secret else repr(value)
    if isinstance(value, str):
        return "text" if secret or len(value) > LONGEST else repr(value)
    if isinstance(value, (list, tuple)):
        return "a list"
    return "a mapping" if isinstance(value, dict) else f"a Python object of type {type(value).__name__}"


def advice(kind: inspect.Type, value: Any) -> str:
    """How to write ``value`` for a field of type ``kind``; empty if that is not clear."""
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    if isinstance(value, str) and any(isinstance(one, (inspect.IntType, inspect.FloatType)) for one in kinds):
        return "Write the number without quotes." if re.fullmatch(r"[-+]?\d+(\.\d+)?", value) else ""
    if isinstance(value, str) and any(isinstance(one, inspect.BoolType) for one in kinds):
        return "Write true or false without quotes." if value.lower() in ("true", "false") else ""
    if isinstance(value, (bool, int, float)) and any(isinstance(one, inspect.StrType) for one in kinds):
        return QUOTE
    if isinstance(value, str) and any(isinstance(one, inspect.ListType) for one in kinds):
        return "Write a list, also for a single value: [VALUE]."
    return ""
