"""Checks a request against the service model of botocore, which itself checks only types and missing fields."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from cloudtrain.errors import nearest

_OTHERS = {name: chr(0xE000 + number) for number, name in enumerate("LNZMSP")}
"""For each Unicode category, the character that replaces its members outside ASCII, in texts and in patterns."""

_CATEGORY = re.compile(r"\\p\{(\w+)\}")
_SURROGATES = r"\uD800\uDC00-\uDBFF\uDFFF"
"""The characters above U+FFFF, as Java writes them: pairs of surrogates."""
_MISPLACED_END = re.compile(r"\$\{\d+,\d+\}$")
"""A quantifier of ``$``, which a few patterns of AWS have by mistake."""


def matches(pattern: str, text: str) -> bool:
    """Whether ``pattern`` matches all of ``text``; true for a pattern that Python cannot read."""
    compiled = compile_pattern(pattern)
    if compiled is None:
        return True
    return compiled.fullmatch(_folded(text) if _CATEGORY.search(pattern) else text) is not None


@cache
def compile_pattern(pattern: str) -> re.Pattern[str] | None:
    """The pattern for ``re``, to match texts folded by `_folded`; None if Python cannot read it."""
    pattern = _MISPLACED_END.sub("", pattern).replace(_SURROGATES, "\U00010000-\U0010ffff")
    try:
        # as in Java, \w and \d are ASCII
        return re.compile(_CATEGORY.sub(lambda match: _members(match[1]), pattern), re.ASCII)
    except (re.error, KeyError):
        return None


def _members(name: str) -> str:
    """The characters of a category, for a set of them: ``[...]``."""
    if name == "Alnum":
        return "a-zA-Z0-9"
    ascii_members = (char for char in map(chr, range(128)) if unicodedata.category(char)[0] == name)
    return re.escape("".join(ascii_members)) + _OTHERS[name]


def _folded(text: str) -> str:
    return "".join(char if char.isascii() else _stand_in(char) for char in text)


def _stand_in(char: str) -> str:
    return _OTHERS.get(unicodedata.category(char)[0], "\x00")


Path = tuple["str | int", ...]
Shape = Mapping[str, Any]

TYPES: dict[str, tuple[Any, str]] = {
    "string": (str, "a string"),
    "integer": (int, "an integer"),
    "long": (int, "an integer"),
    "float": ((int, float), "a number"),
    "double": ((int, float), "a number"),
    "boolean": (bool, "true or false"),
    "structure": (Mapping, "a mapping"),
    "map": (Mapping, "a mapping"),
    "list": ((list, tuple), "a list"),
}
"""For each type of a service model, the Python type and its name in messages."""

LONGEST_QUOTE = 60
MANY = 12
"""Enumerations with more values than this are not listed."""


@dataclass(frozen=True)
class Problem:
    """An error in one value of a request."""

    path: Path
    what: str
    hint: str = ""
    is_unknown: bool = False
    """Whether the service model lacks the field or the value; a newer botocore may have it."""
    value: Any = None

    def describe(self, *, quotes: bool) -> str:
        """The message, without the name of the field."""
        if not quotes or not isinstance(self.value, str):
            return self.what
        text = self.value if len(self.value) <= LONGEST_QUOTE else f"{self.value[: LONGEST_QUOTE - 1]}…"
        return f"{text!r} {self.what}"


def problems(model: Mapping[str, Any], operation: str, body: Mapping[str, Any]) -> Iterator[Problem]:
    """The values in ``body`` that the service would refuse, in the order of its fields.

    Args:
        model: the content of botocore's ``service-2.json``.
        operation: for example ``CreateTrainingJob``.
    """
    shapes = model["shapes"]
    return _check(shapes, model["operations"][operation]["input"]["shape"], body, ())


def _check(shapes: Mapping[str, Shape], name: str, value: Any, path: Path) -> Iterator[Problem]:
    shape = shapes[name]
    kind = shape["type"]
    expected, words = TYPES[kind]
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        yield Problem(path, f"expected {words}, got {type(value).__name__}")
    elif kind == "structure":
        yield from _structure(shapes, shape, value, path)
    elif kind == "map":
        yield from _size(shape, len(value), "entries", path)
        for key, item in value.items():
            for problem in _check(shapes, shape["key"]["shape"], key, (*path, key)):
                yield replace(problem, what=f"its name {problem.what}", value=None)
            yield from _check(shapes, shape["value"]["shape"], item, (*path, key))
    elif kind == "list":
        yield from _size(shape, len(value), "items", path)
        for number, item in enumerate(value):
            yield from _check(shapes, shape["member"]["shape"], item, (*path, number))
    elif kind == "string":
        yield from _string(shape, value, path)
    else:
        yield from _number(shape, value, path)


def _structure(
    shapes: Mapping[str, Shape], shape: Shape, value: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    members = shape["members"]
    for name in shape.get("required", ()):
        if name not in value:
            yield Problem((*path, name), "is missing", "Add it.")
    for name, item in value.items():
        if name not in members:
            yield Problem((*path, name), "SageMaker has no such field", nearest(name, members), True)
        else:
            yield from _check(shapes, members[name]["shape"], item, (*path, name))


def _string(shape: Shape, value: str, path: Path) -> Iterator[Problem]:
    if "enum" in shape:
        if value not in shape["enum"]:
            hint = nearest(value, shape["enum"])
            if hint.startswith("Known") and len(shape["enum"]) > MANY:
                hint = ""
            yield Problem(path, "is not a value that SageMaker knows", hint, True, value)
        return
    if len(value) > shape.get("max", len(value)):
        yield Problem(
            path,
            f"has {len(value):,} characters, and SageMaker accepts at most {shape['max']:,}",
            value=value,
        )
    elif "pattern" in shape and not matches(shape["pattern"], value):
        what = "has a line break, which SageMaker does not accept"
        if shape["pattern"] not in (".*", ".+") or not value:
            what = f"does not match SageMaker's pattern {shape['pattern']}" if value else "is empty"
        yield Problem(path, what, value=value)
    elif len(value) < shape.get("min", 0):
        what = f"has {len(value)} characters, and SageMaker needs at least {shape['min']}"
        yield Problem(path, what if value else "is empty", value=value)


def _number(shape: Shape, value: float, path: Path) -> Iterator[Problem]:
    least, most = shape.get("min"), shape.get("max")
    if (least is not None and value < least) or (most is not None and value > most):
        bounds = f"{least:,} to {most:,}" if None not in (least, most) else f"at least {least:,}"
        if least is None:
            bounds = f"at most {most:,}"
        yield Problem(path, f"is {value:,}, and SageMaker accepts {bounds}")


def _size(shape: Shape, size: int, what: str, path: Path) -> Iterator[Problem]:
    if size > shape.get("max", size):
        yield Problem(path, f"has {size:,} {what}, and SageMaker accepts at most {shape['max']:,}")
    elif size < shape.get("min", 0):
        yield Problem(path, f"has {size:,} {what}, and SageMaker needs at least {shape['min']:,}")
