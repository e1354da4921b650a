"""Forked children (data loaders) inherit connections: while they hold one, nobody hears that their parent has died."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forsaken(Protocol):
    def forsake(self) -> None: ...


_open: weakref.WeakSet[Forsaken] = weakref.WeakSet()


def close_in_children(connection: Forsaken) -> None:
    """Have `forsake` called in every child that is forked from now on."""
    _open.add(connection)


def _forsake() -> None:
    for connection in list(_open):
        connection.forsake()


os.register_at_fork(after_in_child=_forsake)
