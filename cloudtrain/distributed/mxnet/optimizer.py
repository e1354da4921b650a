"""Any MXNet optimizer, stepping with the gradients of all ranks: for ``mx.mod.Module`` and loops of one's own."""

from __future__ import annotations

from typing import Any

import mxnet as mx

from cloudtrain.distributed.mxnet._gradients import Reduction
from cloudtrain.distributed.numpy import ProcessSet, global_process_set
from cloudtrain.observe.timeline import recorder


class DistributedOptimizer(mx.optimizer.Optimizer):  # type: ignore[misc]
    """``optimizer``, whose updates average gradients over the ranks first, in place.

    A module takes it with ``kvstore=None``, or gradients would be added up twice. All other attributes are
    those of ``optimizer``, for reading and for writing.

    Args:
        gradient_predivide_factor: gradients are divided by it before the sum, and multiplied by it and divided
            by the number of ranks after the sum.
        num_groups: into how many operations the gradients of an update of several weights are divided; 0 is
            one.
        process_set: the ranks among which gradients travel; on other ranks updates are the optimizer's own.

    Raises:
        InvalidArgument: a number below what has a meaning.
    """

    def __init__(
        self,
        optimizer: Any,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        reduction = Reduction(gradient_predivide_factor, num_groups, process_set, name="gradient ")
        object.__setattr__(self, "_reduction", reduction)
        object.__setattr__(self, "_optimizer", optimizer)
        object.__setattr__(self, "_first", None)

    def __getattr__(self, name: str) -> Any:
        if name == "_optimizer":  # not made yet, as while it is unpickled
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._optimizer, name, value)

    def create_state(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state_multi_precision(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._average(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._average(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def _average(self, index: Any, grad: Any) -> None:
        """MXNet gives one weight, or lists of several."""
        several = isinstance(index, (tuple, list))
        first = index[0] if several else index
        if self._first is None:
            object.__setattr__(self, "_first", first)
        elif (
            first == self._first
        ):  # a step is several updates: it has ended where its first weight comes again
            recorder.step_ended()
        self._reduction.average_(list(grad) if several else [grad], index if several else [index])
