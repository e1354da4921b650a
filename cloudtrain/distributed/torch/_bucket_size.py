"""``HOROVOD_AUTOTUNE``: the size of the first optimizer's buckets is found out while it trains."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from cloudtrain.distributed._log import logger
from cloudtrain.distributed.options import AUTOTUNE_LOG, autotunes
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Sum
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._autotune import Autotuner
from cloudtrain.distributed.torch.collectives import allreduce_


def tuning_of(process_set: ProcessSet) -> Tuning | None:
    """None where no size is to be found out, and for all optimizers but the first, which would be in its way."""
    claims = _state.current().claims
    if not autotunes() or "autotune" in claims:
        return None
    claims.add("autotune")
    return Tuning(process_set)


class Tuning:
    """All ranks try the same sizes at the same steps, and keep what the first rank of the set found the fastest.

    Ranks that have joined take no part in the others' steps meanwhile: after that all agree anew.
    """

    def __init__(self, process_set: ProcessSet) -> None:
        self._process_set = process_set
        self._tuner = Autotuner()
        self._joins = _state.current().engine.joins

    def begin(self) -> int:
        """Before the first gradient of a step: bytes of its buckets."""
        joins = _state.current().engine.joins
        if joins != self._joins:
            self._joins = joins
            self._agree()
        return self._tuner.size

    def step_ended(self) -> int:
        """After a step: bytes of the next step's buckets."""
        self._tuner.step_ended()
        if self._tuner.measured and self._tuner.kept is None:
            self._agree()
        return self._tuner.size

    def _agree(self) -> None:
        """The first rank tells its choice. Where it has none, because it has joined, all measure anew."""
        tuner, leads = self._tuner, self._process_set.rank() == 0
        if leads and tuner.measured:
            tuner.kept = tuner.fastest
        told = torch.tensor([0 if tuner.kept is None or not leads else tuner.kept + 1])
        name = "DistributedOptimizer.bucket_size"
        chosen = int(allreduce_(told, name=name, op=Sum, process_set=self._process_set)) - 1
        if chosen < 0:
            tuner.restart()
            return
        tuner.kept = chosen
        if leads:
            logger.info("gradients travel in buckets of %d bytes from now on", tuner.size)
            _write(tuner.table())


def _write(table: str) -> None:
    path = os.environ.get(AUTOTUNE_LOG)
    if path:
        try:
            Path(path).write_text(table, encoding="utf-8")
        except OSError as error:
            logger.warning("%s=%s cannot be written: %s", AUTOTUNE_LOG, path, error.strerror)
