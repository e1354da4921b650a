"""From paths of this machine to URIs."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def to_uri(place: str | Path, folder: Path = Path()) -> str:
    """A path, relative to ``folder``, as a ``file://`` URI; a URI as it is.

    >>> to_uri("data", Path("/home/me"))
    'file:///home/me/data'
    >>> to_uri("s3://bucket/data")
    's3://bucket/data'
    """
    text = str(place)
    return text if "://" in text else (folder / text).absolute().as_uri()


def existing_to_uri(channel: Any) -> Any:
    """The URI of a file or folder that exists; anything else as it is, for validation."""
    is_path = isinstance(channel, (str, Path)) and "://" not in str(channel) and Path(channel).exists()
    return to_uri(channel) if is_path else channel
