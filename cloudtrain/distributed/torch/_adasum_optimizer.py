"""Optimizers whose steps, instead of gradients, are combined over ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Callable

import torch
from torch import Tensor

from cloudtrain import observe
from cloudtrain.distributed.errors import GradientOrderError, InvalidArgument
from cloudtrain.distributed.options import fusion_threshold
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Adasum
from cloudtrain.distributed.torch._adasum import adasum_
from cloudtrain.distributed.torch._handle import reported
from cloudtrain.distributed.torch._join import launching
from cloudtrain.distributed.torch._operation import group_of
from cloudtrain.distributed.torch._parameters import parameters_of
from cloudtrain.distributed.torch.compression import Compressor
from cloudtrain.observe.timeline import recorder


class AdasumOptimizer(torch.optim.Optimizer):
    """Stands before the optimizer's own class in the order of resolution.

    Every rank makes a step with its own gradients; then the ranks combine by Adasum what it has changed in each
    parameter. So each rank has its own optimizer state. The ranks exchange nothing in the backward pass.
    """

    _process_set: ProcessSet
    _compression: type[Compressor]

    def synchronize(self) -> None:
        """Does nothing: gradients stay this rank's own."""

    def skip_synchronize(self) -> AbstractContextManager[None]:
        raise GradientOrderError("Skipping synchronization is not supported when using Adasum optimizer.")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        parameters = [p.detach() for p in parameters_of(self) if p.requires_grad]
        starts = [p.clone() for p in parameters]
        loss = super().step() if closure is None else super().step(closure)
        for parameter, start in zip(parameters, starts):
            parameter.sub_(start)
        for deltas in _batches(parameters):
            self._combine_(deltas)
        for parameter, start in zip(parameters, starts):
            parameter.add_(start)
        observe.beat()
        recorder.step_ended()
        return loss

    # The base class's step is hooked and profiled; torch is told not to do that once more.
    step.hooked = True  # type: ignore[attr-defined]

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Does nothing: all gradients since `zero_grad` count."""

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """The first thing that ``GradScaler.step`` asks for."""
        raise InvalidArgument(
            "GradScaler does not work with op=Adasum: it would skip a step on some ranks only",
            hint="Train in bfloat16, which needs no GradScaler, or with op=Average.",
        )

    def _combine_(self, deltas: list[Tensor]) -> None:
        compressed = [self._compression.compress(delta) for delta in deltas]
        wires = [wire for wire, _ in compressed]
        label, group = "Adasum of the optimizer's step", group_of(self._process_set)
        complete = launching(label, group, Adasum, wires)
        timeline = recorder.active
        operation = None if timeline is None else timeline.operation("allreduce", label, {})
        with reported(label):
            adasum_(wires, group, self._process_set.members())
        complete()
        if timeline is not None and operation is not None:
            operation.end()
            timeline.waited(label, operation.asked)
        for delta, (wire, context) in zip(deltas, compressed):
            if wire is not delta:
                delta.copy_(self._compression.decompress(wire, context))


def _batches(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Neighbours of one type on one device, of about the size of a bucket."""
    limit = fusion_threshold()
    batch: list[Tensor] = []
    size = 0
    for tensor in tensors:
        alike = batch and (batch[0].dtype, batch[0].device) == (tensor.dtype, tensor.device)
        if batch and (not alike or size >= limit):
            yield batch
            batch, size = [], 0
        batch.append(tensor)
        size += tensor.numel() * tensor.element_size()
    if batch:
        yield batch
