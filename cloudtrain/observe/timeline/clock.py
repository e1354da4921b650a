"""One clock for all ranks: each measures how far its own is from that of rank 0.

The exchange is that of NTP (RFC 5905, section 8): a rank notes when it asks and when the answer is there, and takes
rank 0's time to be that of the middle. Of several exchanges the one with the shortest round trip is the best.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Callable, Optional

ROUNDS = 10

Exchange = tuple[int, int, int]
"""This rank's time when it asked, rank 0's when it answered, and this rank's when it heard; in ns."""
Ask = Callable[[], Optional[Exchange]]
"""Makes one exchange; None where rank 0 does not answer."""


class Clock:
    """Nanoseconds since the epoch, which go on evenly where the machine's clock is set anew meanwhile."""

    def __init__(
        self, wall: Callable[[], int] = time.time_ns, steady: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.steady = steady
        self._epoch = wall() - steady()

    def __call__(self) -> int:
        return self._epoch + self.steady()

    def at(self, steady: int) -> int:
        """The time when the steady clock showed ``steady``."""
        return self._epoch + steady


@dataclass(frozen=True)
class Offset:
    """How far rank 0's clock was ahead of this rank's."""

    at_ns: int
    """When it was measured, by this rank's clock."""
    offset_ns: int
    round_trip_ns: int
    """The offset is wrong by at most half of it."""


def measure(ask: Ask, rounds: int = ROUNDS) -> Offset | None:
    """None where rank 0 does not answer."""
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
"""This process's."""
