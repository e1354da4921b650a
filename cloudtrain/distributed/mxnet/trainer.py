"""Gluon's trainer, stepping with the gradients of all ranks."""

from __future__ import annotations

import warnings
from typing import Any

import mxnet as mx

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.mxnet._gradients import Reduction
from cloudtrain.distributed.mxnet.compression import Compression, Compressor
from cloudtrain.distributed.mxnet.optimizer import DistributedOptimizer
from cloudtrain.distributed.numpy import ProcessSet, global_process_set
from cloudtrain.observe.timeline import recorder


class DistributedTrainer(mx.gluon.Trainer):  # type: ignore[misc]
    """A ``Trainer`` whose ``step(batch_size)`` averages gradients over the ranks first.

    ``batch_size`` is that of this rank. ``allreduce_grads`` leaves averages, so that they can be clipped before
    ``update``.

    Args:
        params: ``net.collect_params()``; on one device, as each rank has its own.
        compression: of gradients on the wire.
        gradient_predivide_factor: gradients are divided by it before the sum, and multiplied by it and divided
            by the number of ranks after the sum.
        prefix: put before the names that ranks are matched by, and that errors tell.
        num_groups: into how many operations of about as many gradients each a step's are divided; 0 is one.
        process_set: the ranks among which gradients travel; on other ranks ``step`` is that of ``Trainer``.

    Raises:
        InvalidArgument: parameters on several devices, or a number below what has a meaning.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: Any = None,
        compression: type[Compressor] = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        name = f"{prefix or ''}gradient "
        self._reduction = Reduction(gradient_predivide_factor, num_groups, process_set, compression, name)
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "DistributedTrainer averages gradients itself; the DistributedOptimizer is unwrapped.",
                stacklevel=2,
            )
            optimizer = optimizer._optimizer
        super().__init__(params, optimizer, optimizer_params, kvstore=None)
        if len(self._contexts or ()) > 1:
            raise InvalidArgument(
                f"the parameters are on {len(self._contexts)} devices",
                hint="Start a rank for each device, and give initialize(ctx=...) that one.",
            )

    def _allreduce_grads(self) -> None:
        trained = {n: one for n, one in enumerate(self._params) if one.grad_req != "null"}
        self._reduction.average_([one.list_grad()[0] for one in trained.values()], list(trained))

    def _update(self, ignore_stale_grad: bool = False) -> None:
        super()._update(ignore_stale_grad)
        recorder.step_ended()
