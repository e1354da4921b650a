"""The hash of a file's content."""

from __future__ import annotations

import hashlib
from pathlib import Path

CHUNK = 1 << 20
"""Bytes that are read at a time."""


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal. Raises OSError."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while data := file.read(CHUNK):
            digest.update(data)
    return digest.hexdigest()
