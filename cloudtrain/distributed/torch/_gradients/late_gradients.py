"""Gradients that arrive after those of the same step have been reduced.

For example, a script computes the gradients of two parts of a model in two backward passes. The gradients of a step are
reduced after the first one, because the optimizer cannot foresee the second.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable

import torch
from torch import Tensor

from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, ReduceOp, ScaledOp, Sum
from cloudtrain.distributed.torch._gradients.buckets import Slot
from cloudtrain.distributed.torch._reductions import reduce_tensors
from cloudtrain.distributed.torch.collectives import sparse_allreduce_async


class LateGradients:
    """Averages gradients that already contain a result of all ranks. For sums, further gradients are first multiplied
    by the number of ranks."""

    def __init__(self, op: ReduceOp, process_set: ProcessSet) -> None:
        self._op = op
        self._process_set = process_set
        self._slots: dict[Slot, None] = {}
        self._names: list[str] = []
        """The names of the gradients launched last, in the order of their arrival."""
        self._waits: list[Callable[[], object]] = []
        self._hooked: list[tuple[Any, Any]] = []
        """Nodes, which live only as long as something refers to them, and the handles of their hooks."""

    def expect(self, slots: Iterable[Slot]) -> None:
        """Prepare for further gradients of ``slots``."""
        if self._op != Sum:
            return
        size = self._process_set.size()
        for slot in slots:
            if slot.parameter.requires_grad:
                node: Any = torch.autograd.graph.get_gradient_edge(slot.parameter).node
                self._hooked.append((node, node.register_prehook(lambda grads: _multiplied(grads, size))))

    def add(self, slot: Slot) -> None:
        """Record that the gradient of ``slot`` has arrived."""
        self._slots[slot] = None

    def launch(self) -> None:
        """Start to average the gradients that have arrived; the same on all ranks."""
        label = "late gradients"
        self._names = [slot.name for slot in self._slots]
        dense: dict[torch.device, list[tuple[str, Tensor]]] = {}
        for slot in sorted(self._slots, key=lambda slot: slot.name):
            gradient = slot.take()
            if gradient is None:
                continue
            if gradient.is_sparse:
                name = f"{label}: {slot.name}"
                handle = sparse_allreduce_async(gradient, name, Average, self._process_set)
                self._waits.append(handle.then(slot.give_back))
            else:
                dense.setdefault(gradient.device, []).append((slot.name, gradient.detach()))
        for device, named in dense.items():
            names, gradients = zip(*named)
            self._waits.append(
                reduce_tensors(
                    gradients,
                    ScaledOp(Average),
                    f"{label} on {device}",
                    self._process_set,
                    in_place=True,
                    must_match={"gradients": list(names)},
                )
            )
        self._slots.clear()

    def finish(self) -> None:
        """Wait for the launched reductions."""
        try:
            while self._waits:
                self._waits.pop(0)()
        except CollectiveError as error:
            raise CollectiveError(
                f"{error.message} (of a further backward pass of the step: {', '.join(self._names[:3])} ...)",
                hint="Call backward on all ranks, for the same parameters, or on none.",
            ) from error

    def clear(self) -> None:
        """Forget everything at the end of a step."""
        self._slots.clear()
        self._waits.clear()
        for _, hook in self._hooked:
            hook.remove()
        self._hooked.clear()


def _multiplied(gradients: tuple[Any, ...], factor: int) -> tuple[Any, ...]:
    return tuple(None if gradient is None else gradient * factor for gradient in gradients)
