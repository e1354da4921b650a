"""Hides known values in text and in streams of bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from cloudtrain._secrets.urls import HIDDEN, hide_credentials

SHORTEST_SECRET = 4
"""Minimum characters. Shorter values are not secrets, and also occur in ordinary text."""


class ValueHider:
    """Replaces values with ``***``, also as a part of a URL, JSON or a printed dict. True if there are any values."""

    def __init__(self, values: Iterable[str]) -> None:
        long = {value for value in values if len(value) >= SHORTEST_SECRET}
        texts = long | {text for value in long for text in _written(value)}
        # the longest first: one may be a part of another
        self._values = sorted(
            (text.encode("utf-8", "surrogateescape") for text in texts), key=len, reverse=True
        )
        self._pattern = re.compile(b"|".join(map(re.escape, self._values))) if self._values else None

    @classmethod
    def of_variables(cls, names: Iterable[str], environ: Mapping[str, str]) -> ValueHider:
        """A hider of the values that these variables have in ``environ``."""
        return cls(environ[name] for name in names if name in environ)

    def __bool__(self) -> bool:
        return self._pattern is not None

    def hide(self, data: bytes) -> bytes:
        return self._pattern.sub(HIDDEN.encode(), data) if self._pattern else data

    def end_of_shown(self, data: bytes) -> int:
        """The offset up to which ``data``, the beginning of a stream, can be shown: no value can extend beyond it."""
        if self._pattern is None:
            return len(data)
        end = len(data) - max(_overlap(data, value) for value in self._values)
        within = next(
            (found for found in self._pattern.finditer(data) if found.start() < end < found.end()), None
        )
        return within.start() if within else end

    def hide_all(self, value: Any) -> Any:
        """``value``, which consists of dicts, lists and scalars, with secret values and credentials in URLs hidden."""
        if isinstance(value, str):
            data = value.encode("utf-8", "surrogatepass")
            return hide_credentials(self.hide(data).decode("utf-8", "surrogatepass"))
        if isinstance(value, dict):
            return {key: self.hide_all(item) for key, item in value.items()}
        return [self.hide_all(item) for item in value] if isinstance(value, (list, tuple)) else value


class StreamHider:
    """Hides values in a stream that arrives in pieces. Holds back the beginning of a value at the end of a piece."""

    def __init__(self, hider: ValueHider) -> None:
        self._hider = hider
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """Add ``piece`` to the stream. Returns the next part that can be shown."""
        if not self._hider:
            return piece
        data = self._held + piece
        end = self._hider.end_of_shown(data)
        self._held = data[end:]
        return self._hider.hide(data[:end])

    def flush(self) -> bytes:
        """The bytes that were held back."""
        held, self._held = self._held, b""
        return self._hider.hide(held)


def _written(value: str) -> Iterator[str]:
    """``value`` as it is written in a URL, in JSON, and in the representation of a dict or list."""
    if value.isascii():
        yield quote(value, safe="")
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]


def _overlap(data: bytes, value: bytes) -> int:
    """The length of the longest beginning of ``value`` that ``data`` ends with."""
    sizes = range(min(len(value) - 1, len(data)), 0, -1)
    return next((size for size in sizes if data.endswith(value[:size])), 0)
