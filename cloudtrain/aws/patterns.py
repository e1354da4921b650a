"""Matches the patterns of AWS's service models, which are Java's, with Python's ``re``."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

_OTHERS = {name: chr(0xE000 + number) for number, name in enumerate("LNZMSP")}
"""By category of Unicode, the character that replaces its members outside ASCII, in a text and in a pattern."""

_CATEGORY = re.compile(r"\\p\{(\w+)\}")
_SURROGATES = r"\uD800\uDC00-\uDBFF\uDFFF"
"""The characters above U+FFFF, as Java writes them: pairs of surrogates."""
_MISPLACED_END = re.compile(r"\$\{\d+,\d+\}$")
"""A count of ends, in a few patterns of AWS."""


def matches(pattern: str, text: str) -> bool:
    """Whether all of ``text`` has the form of ``pattern``; true for a pattern that Python cannot read."""
    compiled = compile_pattern(pattern)
    if compiled is None:
        return True
    return compiled.fullmatch(_folded(text) if _CATEGORY.search(pattern) else text) is not None


@cache
def compile_pattern(pattern: str) -> re.Pattern[str] | None:
    """The pattern for ``re``, which matches texts whose other characters are folded; None if Python cannot read it."""
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
