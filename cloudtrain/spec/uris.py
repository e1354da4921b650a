"""Converts local paths to URIs."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def to_uri(place: str | Path, folder: Path = Path()) -> str:
    """Convert a path, relative to ``folder``, to a ``file://`` URI. A URI is unchanged.

    >>> to_uri("data", Path("/home/me"))
    'file:///home/me/data'
    >>> to_uri("s3://bucket/data")
    's3://bucket/data'
    """
    text = str(place)
    return text if "://" in text else (folder / text).absolute().as_uri()


def existing_to_uri(channel: Any) -> Any:
    """The URI of an existing file or folder. Anything else is unchanged, for validation."""
    is_path = isinstance(channel, (str, Path)) and "://" not in str(channel) and Path(channel).exists()
    return to_uri(channel) if is_path else channel
