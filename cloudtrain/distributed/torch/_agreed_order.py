"""The order of exchanges between layers, which the ranks agree on once, and then keep to without negotiation."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Any

Exchange = Hashable
"""The identity of an exchange: the layer and direction, and the values that must match between ranks."""

MOST = 10_000
"""The most exchanges to remember."""


class AgreedOrder:
    """Which exchange follows which one.

    All ranks request the same exchanges. An exchange is negotiated the first time that it follows the one before it,
    and from then on it is `expected` there. Where two exchanges have followed the same one, each is always negotiated.
    So a rank that leaves the order negotiates, and the error or the warning says so: exchanges that do not match are
    never started. Every rank decides by what it has requested since the last `restart`, which is the same on all ranks.
    """

    def __init__(self) -> None:
        self.group: Any = None
        """The process group of the exchanges that are not negotiated."""
        self.watched = False
        """Whether a thread warns of ranks that do not take part."""
        self.restart()

    def restart(self, joins: int = 0) -> None:
        """Forget the order: after a failure, and after a `join`, because a joined rank has requested nothing.

        Args:
            joins: how often all ranks have joined.
        """
        self.joins = joins
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._count = 0
        self._last: Exchange = None
        self._next: dict[Exchange, Exchange] = {}
        """The only exchange that has followed; None if there were several."""

    def number(self, layer: Any) -> int:
        """The number of ``layer``, in the order in which layers were first used."""
        if layer not in self._numbers:
            self._count += 1
            self._numbers[layer] = self._count
        return self._numbers[layer]

    def expects(self, exchange: Exchange) -> bool:
        """Whether all ranks have agreed that ``exchange`` is next."""
        return self._next.get(self._last) == exchange

    def passed(self, exchange: Exchange) -> None:
        """All ranks have requested ``exchange``."""
        if len(self._next) > MOST:  # layers that are used once
            self.restart(self.joins)
        known = self._next.setdefault(self._last, exchange)
        if known != exchange:
            self._next[self._last] = None
        self._last = exchange
