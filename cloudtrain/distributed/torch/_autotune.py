"""How many bytes of gradients had best travel together: a few sizes are tried, and the fastest is kept.

Horovod's ``HOROVOD_AUTOTUNE`` searches by Bayesian optimization, for several parameters at once. Here there is one, and
few sizes of it differ in what they do: all of them are measured, alike in every run.
"""

from __future__ import annotations

import statistics
import time
from typing import Callable

MB = 1 << 20
SIZES = (25 * MB, 1 * MB, 4 * MB, 100 * MB)
"""In the order in which they are tried; the first is the default, which is kept where the ranks must begin anew."""
WARM_UP_STEPS = 3
"""Steps after a change that do not count: buffers are made in them."""
STEPS = 10
"""Steps of each size that count."""


class Autotuner:
    """Counts the steps of one rank, which are those of all ranks."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.restart()

    def restart(self) -> None:
        """Measure anew."""
        self._seconds: list[list[float]] = [[]]
        self._steps = 0
        self._last = self._clock()
        self.kept: int | None = None
        """The number of the size that all ranks keep, once they have agreed on it."""

    def step_ended(self) -> None:
        now = self._clock()
        took, self._last = now - self._last, now
        if self.measured or self.kept is not None:
            return
        self._steps += 1
        if self._steps > WARM_UP_STEPS:
            self._seconds[-1].append(took)
        if len(self._seconds[-1]) == STEPS:
            self._seconds.append([])
            self._steps = 0

    @property
    def measured(self) -> bool:
        """Whether all sizes have been tried."""
        return len(self._seconds) > len(SIZES)

    @property
    def size(self) -> int:
        """Bytes of the next step's buckets."""
        if self.kept is not None:
            return SIZES[self.kept]
        return SIZES[0] if self.measured else SIZES[len(self._seconds) - 1]

    @property
    def fastest(self) -> int:
        """The number of the size with the shortest median step; to be asked once all are `measured`."""
        medians = [statistics.median(seconds) for seconds in self._seconds[: len(SIZES)]]
        return medians.index(min(medians))

    def table(self) -> str:
        """What was measured, as CSV."""
        rows = [f"{size},{statistics.median(took):.6f}" for size, took in zip(SIZES, self._seconds)]
        return "\n".join(["fusion_threshold,seconds_per_step", *rows, f"# kept: {self.size}", ""])
