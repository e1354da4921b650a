"""Parses volumes and sizes, for the client and the supervisor."""

from __future__ import annotations

import re

from cloudtrain.errors import InvalidJob

_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_VOLUME = re.compile(r"(?P<source>/[^:]*):(?P<target>/[^:]*)(?::(?P<mode>ro|rw))?")


def parse_volume(text: str) -> tuple[str, str, bool]:
    """Split ``/here:/there:ro`` into the source, the target, and whether it is read-only. Raises InvalidJob."""
    match = _VOLUME.fullmatch(text)
    if match is None:
        raise InvalidJob(
            f"platform_options.volumes: {text!r} is not like /here:/there or /here:/there:ro",
            hint="Both paths must be absolute: the first on this machine, the second in the container.",
        )
    return match["source"], match["target"], match["mode"] == "ro"


def size_in_bytes(text: str) -> int:
    """
    >>> size_in_bytes("1.5g")
    1610612736
    """
    unit = text[-1].lower()
    return int(float(text[:-1]) * _UNITS[unit]) if unit in _UNITS else int(float(text))
