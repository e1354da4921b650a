"""Marks the data of a channel as complete on a spare host, so that it is not fetched again for its first script."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence

from cloudtrain._system.safe_open import Beneath
from cloudtrain.contract import Paths
from cloudtrain.storage import ObjectInfo

_FOLDER = "prepared"
_LONGEST = 100


def mark_prepared(paths: Paths, channel: str, entries: Sequence[ObjectInfo]) -> None:
    """Note that a channel's data is complete, before any script has run here."""
    with Beneath(paths.base) as base:
        base.make_folder(_FOLDER)
        base.write(f"{_FOLDER}/{channel}", _digest(entries))


def take_prepared(paths: Paths, channel: str, entries: Sequence[ObjectInfo]) -> bool:
    """Whether the channel's data is complete and has not changed since. The script may change it now: asks once."""
    key = f"{_FOLDER}/{channel}"
    with contextlib.suppress(OSError), Beneath(paths.base) as base:
        mark = base.read(key, _LONGEST)
        base.remove(key)
        return mark == _digest(entries)
    return False


def _digest(entries: Sequence[ObjectInfo]) -> bytes:
    listing = sorted((entry.key, entry.size, entry.modified) for entry in entries)
    return hashlib.sha256(repr(listing).encode()).hexdigest().encode()
