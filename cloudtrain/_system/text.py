"""Text without the characters that a terminal executes."""

from __future__ import annotations

import re

from cloudtrain._system.patterns import pattern

_CONTROLS = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""Control characters, line separators, bidirectional controls, and lone surrogates."""

_UNSAFE = pattern(f"[{_CONTROLS}]")
_UNSAFE_IN_TEXT = pattern(f"(?![\n\t])[{_CONTROLS}]")


def escape_line(text: str) -> str:
    r"""One line without control characters, which are escaped as in Python source.

    >>> escape_line("a\x1b]0;owned\x07\nb")
    'a\\x1b]0;owned\\x07\\nb'
    """
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(_escaped, text)


def escape_text(text: str) -> str:
    """Like `escape_line`, for text of several lines: keeps line feeds and tabs."""
    return _UNSAFE_IN_TEXT.sub(_escaped, text)


def to_json(value: object, indent: int | None = None) -> str:
    r"""``value`` as JSON that a terminal can show.

    >>> to_json("été\x9b2J")
    '"été\\u009b2J"'
    """
    import json

    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _UNSAFE_IN_TEXT.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(match: re.Match[str]) -> str:
    return repr(match[0])[1:-1]
