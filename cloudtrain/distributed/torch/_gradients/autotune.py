"""``HOROVOD_AUTOTUNE``: tries several bucket sizes during training and keeps the fastest.

Horovod searches several parameters with Bayesian optimization. Here there is one parameter with few relevant values, so
all of them are measured, in the same order in every run.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Callable

import torch

from cloudtrain.distributed.options import AUTOTUNE_LOG, autotunes, logger
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Sum
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch.collectives import allreduce_

MB = 1 << 20
SIZES = (25 * MB, 1 * MB, 4 * MB, 100 * MB)
"""In the order in which they are tried. The first is the default, and is used again when measuring restarts."""
WARM_UP_STEPS = 3
"""Steps after a change that are not counted, because buffers are allocated in them."""
STEPS = 10
"""Counted steps of each size."""


class Autotuner:
    """Measures the steps of one rank. All ranks make the same steps."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.restart()

    def restart(self) -> None:
        """Discard all measurements."""
        self._seconds: list[list[float]] = [[]]
        self._steps = 0
        self._last = self._clock()
        self.kept: int | None = None
        """Index of the size that all ranks have agreed to keep."""

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
        """Whether all sizes have been measured."""
        return len(self._seconds) > len(SIZES)

    @property
    def size(self) -> int:
        """Bytes of the next step's buckets."""
        if self.kept is not None:
            return SIZES[self.kept]
        return SIZES[0] if self.measured else SIZES[len(self._seconds) - 1]

    @property
    def fastest(self) -> int:
        """Index of the size with the shortest median step. Requires `measured`."""
        medians = [statistics.median(seconds) for seconds in self._seconds[: len(SIZES)]]
        return medians.index(min(medians))

    def table(self) -> str:
        """The measurements as CSV."""
        rows = [f"{size},{statistics.median(took):.6f}" for size, took in zip(SIZES, self._seconds)]
        return "\n".join(["fusion_threshold,seconds_per_step", *rows, f"# kept: {self.size}", ""])


def tuning_of(process_set: ProcessSet) -> Tuning | None:
    """None if tuning is off. Only the first optimizer tunes, because several would disturb each other."""
    claims = _state.current().claims
    if not autotunes() or "autotune" in claims:
        return None
    claims.add("autotune")
    return Tuning(process_set)


class Tuning:
    """All ranks try the same sizes at the same steps, and keep the one that was fastest on the first rank of the set.

    A joined rank misses steps of the other ranks, so all ranks agree again after a join.
    """

    def __init__(self, process_set: ProcessSet) -> None:
        self._process_set = process_set
        self._tuner = Autotuner()
        self._joins = _state.current().client.sequence_numbers.joins

    def begin(self) -> int:
        """The bucket size in bytes; called before the first gradient of a step."""
        joins = _state.current().client.sequence_numbers.joins
        if joins != self._joins:
            self._joins = joins
            self._agree()
        return self._tuner.size

    def step_ended(self) -> int:
        """The bucket size in bytes for the next step; called after a step."""
        self._tuner.step_ended()
        if self._tuner.measured and self._tuner.kept is None:
            self._agree()
        return self._tuner.size

    def _agree(self) -> None:
        """Adopt the first rank's choice. If it has none because it had joined, all ranks measure again."""
        tuner, leads = self._tuner, self._process_set.rank() == 0
        if leads and tuner.measured:
            tuner.kept = tuner.fastest
        choice = torch.tensor([0 if tuner.kept is None or not leads else tuner.kept + 1])
        name = "DistributedOptimizer.bucket_size"
        chosen = int(allreduce_(choice, name=name, op=Sum, process_set=self._process_set)) - 1
        if chosen < 0:
            tuner.restart()
            return
        tuner.kept = chosen
        if leads:
            logger.info("gradients are reduced in buckets of %d bytes from now on", tuner.size)
            _write(tuner.table())


def _write(table: str) -> None:
    path = os.environ.get(AUTOTUNE_LOG)
    if path:
        try:
            Path(path).write_text(table, encoding="utf-8")
        except OSError as error:
            logger.warning("%s=%s cannot be written: %s", AUTOTUNE_LOG, path, error.strerror)
