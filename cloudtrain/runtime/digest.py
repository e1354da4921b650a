"""The hash of a file's content."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO

CHUNK = 1 << 20
"""Bytes that are read at a time."""


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal. Raises OSError."""
    with open(path, "rb") as file:
        return sha256_of_open(file)


def sha256_of_open(file: BinaryIO) -> str:
    """The SHA-256 of the rest of an open file, in hexadecimal. Raises OSError."""
    digest = hashlib.sha256()
    while data := file.read(CHUNK):
        digest.update(data)
    return digest.hexdigest()
