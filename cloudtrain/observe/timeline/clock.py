"""One clock for all ranks: each rank measures the offset of its clock from that of rank 0.

The exchange is that of NTP (RFC 5905, section 8): a rank reads its clock before the request and after the answer, and
assumes that rank 0 read its own halfway between. The exchange with the shortest round trip is the most accurate.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Callable, Optional

ROUNDS = 10

Exchange = tuple[int, int, int]
"""This rank's time of the request, rank 0's time of the answer, and this rank's time of its receipt; in ns."""
Ask = Callable[[], Optional[Exchange]]
"""Makes one exchange; returns None if rank 0 does not answer."""


class Clock:
    """Nanoseconds since the epoch, unaffected by later adjustments of the machine's clock."""

    def __init__(
        self, wall: Callable[[], int] = time.time_ns, steady: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.steady = steady
        self._epoch = wall() - steady()

    def __call__(self) -> int:
        return self._epoch + self.steady()

    def at(self, steady: int) -> int:
        """Converts a time of the steady clock."""
        return self._epoch + steady


@dataclass(frozen=True)
class Offset:
    """How far rank 0's clock is ahead of this rank's."""

    at_ns: int
    """When it was measured, on this rank's clock."""
    offset_ns: int
    round_trip_ns: int
    """The error of the offset is at most half of it."""


def measure(ask: Ask, rounds: int = ROUNDS) -> Offset | None:
    """The offset from the best of ``rounds`` exchanges; None if rank 0 does not answer."""
    best: Offset | None = None
    for _ in range(rounds):
        exchange = ask()
        if exchange is None:
            break
        asked, answered, heard = exchange
        if best is None or heard - asked < best.round_trip_ns:
            best = Offset(heard, answered - (asked + heard) // 2, heard - asked)
    return best


clock = Clock()
"""The clock of this process."""
