"""A step's gradients, over all ranks."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, ReduceOp, known_op
from cloudtrain.distributed.tensorflow._differentiable import nothing
from cloudtrain.distributed.tensorflow._session import global_process_set
from cloudtrain.distributed.tensorflow.collectives import reduce_group
from cloudtrain.distributed.tensorflow.compression import Compression, Compressor
from cloudtrain.observe.timeline import recorder


@dataclass(eq=False)
class GradientReducer:
    """Reduces the gradients of a step, all as one operation. Arguments of ``DistributedOptimizer``.

    Raises:
        InvalidArgument: they do not fit each other.
    """

    name: str
    """What ranks match the operation by."""
    device_dense: str = ""
    device_sparse: str = ""
    compression: type[Compressor] = Compression.none
    sparse_as_dense: bool = False
    op: ReduceOp = Average
    gradient_predivide_factor: float = 1.0
    num_groups: int = 0
    groups: int | Sequence[Sequence[Any]] | None = None
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True
    _local: dict[int, Any] = field(default_factory=dict)
    """By identity: as tensors variables are equal by value."""

    def __post_init__(self) -> None:
        if self.gradient_predivide_factor != 1.0 and self.op != Average:
            raise InvalidArgument("gradient_predivide_factor not supported with op != Average")
        if self.num_groups != 0:
            warnings.warn(
                "Parameter `num_groups` has been replaced by `groups`", DeprecationWarning, stacklevel=4
            )
        # All gradients travel together, so those of a group do.
        if isinstance(self.groups, int) and self.groups <= 0:
            raise InvalidArgument("groups should be a non-negative integer or a list of list of tf.Variable.")

    def keep_local(self, variable: Any) -> None:
        """The gradient of ``variable`` stays this rank's own."""
        self._local[id(variable)] = variable

    def is_local(self, variable: Any) -> bool:
        return id(variable) in self._local

    def reduce(self, gradients: Iterable[Any], variables: Sequence[Any]) -> list[Any]:
        """The gradients of ``variables`` over all ranks; None where there is none, which is so on all ranks."""
        results = list(gradients)
        if not self.process_set.included() or self.process_set.size() == 1:
            return results
        for n, (gradient, variable) in enumerate(zip(results, variables)):
            if self.is_local(variable) and gradient is not None and self.scale_local_gradients:
                # Each rank's loss is the average over its own data: that over the data of all is 1 / size of it.
                results[n] = _scaled(gradient, 1.0 / self.process_set.size())
        travelling = [
            n
            for n, (gradient, variable) in enumerate(zip(results, variables))
            if gradient is not None and not self.is_local(variable)
        ]
        if not travelling:
            return results
        sent = [results[n] for n in travelling]
        if self.sparse_as_dense:
            sent = [tf.convert_to_tensor(one) for one in sent]
        for n, reduced in zip(travelling, self._reduced(sent)):
            results[n] = reduced
        return results

    def _reduced(self, gradients: list[Any]) -> list[Any]:
        factor = self.gradient_predivide_factor
        sparse = [n for n, one in enumerate(gradients) if isinstance(one, tf.IndexedSlices)]
        dense = [n for n in range(len(gradients)) if n not in set(sparse)]
        results = list(gradients)
        for numbers, prescale, postscale, then in (
            (dense, 1.0 / factor, factor, nothing if sparse else recorder.step_ended),
            (sparse, 1.0, 1.0, recorder.step_ended),
        ):
            if numbers:
                reduced = reduce_group(
                    [gradients[n] for n in numbers],
                    self.device_dense,
                    self.device_sparse,
                    self.compression,
                    known_op(self.op),
                    prescale,
                    postscale,
                    self.process_set,
                    self.name,
                    then,
                )
                for n, one in zip(numbers, reduced):
                    results[n] = one
        return results


def _scaled(gradient: Any, factor: float) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor
