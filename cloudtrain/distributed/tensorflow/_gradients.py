"""The gradients of a step, reduced across ranks, or accumulated over several steps first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable

import tensorflow as tf

from cloudtrain.distributed._gradients import Compressor, check_predivide_factor
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, ReduceOp, ScaledOp, known_op
from cloudtrain.distributed.tensorflow._bridge import Compression
from cloudtrain.distributed.tensorflow._context import global_process_set
from cloudtrain.distributed.tensorflow._differentiable import no_op
from cloudtrain.distributed.tensorflow.collectives import reduce_group
from cloudtrain.observe.timeline import recorder


@dataclass(eq=False)
class GradientReducer:
    """Reduces all gradients of a step in one operation. Takes the options of ``DistributedOptimizer``.

    Raises:
        InvalidArgument: The options are contradictory.
    """

    name: str
    """The name by which ranks match the operation."""
    device_dense: str = ""
    device_sparse: str = ""
    compression: type[Compressor] = Compression.none
    sparse_as_dense: bool = False
    op: ReduceOp = Average
    gradient_predivide_factor: float = 1.0
    groups: int | Sequence[Sequence[Any]] | None = None
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True
    _local: dict[int, Any] = field(default_factory=dict)
    """By identity, because variables compare by value."""

    def __post_init__(self) -> None:
        check_predivide_factor(self.gradient_predivide_factor, self.op)
        # Valid groups change nothing: all gradients are sent in one operation.
        if isinstance(self.groups, int) and self.groups <= 0:
            raise InvalidArgument("groups should be a non-negative integer or a list of list of tf.Variable.")

    def keep_local(self, variable: Any) -> None:
        """Exclude the gradient of ``variable`` from the reduction."""
        self._local[id(variable)] = variable

    def is_local(self, variable: Any) -> bool:
        return id(variable) in self._local

    def reduce(self, gradients: Iterable[Any], variables: Sequence[Any]) -> list[Any]:
        """Return the reduced gradients of ``variables``. None stays None, and has to be None on all ranks."""
        results = list(gradients)
        if not self.process_set.included() or self.process_set.size() == 1:
            return results
        for n, (gradient, variable) in enumerate(zip(results, variables)):
            if self.is_local(variable) and gradient is not None and self.scale_local_gradients:
                # A rank's loss is the mean over its own data, and contributes 1 / size to the mean over all data.
                results[n] = _scaled(gradient, 1.0 / self.process_set.size())
        numbers = [
            n
            for n, (gradient, variable) in enumerate(zip(results, variables))
            if gradient is not None and not self.is_local(variable)
        ]
        if not numbers:
            return results
        own = [results[n] for n in numbers]
        if self.sparse_as_dense:
            own = [tf.convert_to_tensor(one) for one in own]
        for n, reduced in zip(numbers, self._reduced(own)):
            results[n] = reduced
        return results

    def _reduced(self, gradients: list[Any]) -> list[Any]:
        factor = self.gradient_predivide_factor
        sparse = [n for n, one in enumerate(gradients) if isinstance(one, tf.IndexedSlices)]
        dense = [n for n in range(len(gradients)) if n not in set(sparse)]
        results = list(gradients)
        for numbers, prescale, postscale, then in (
            (dense, 1.0 / factor, factor, no_op if sparse else recorder.step_ended),
            (sparse, 1.0, 1.0, recorder.step_ended),
        ):
            if numbers:
                reduced = reduce_group(
                    [gradients[n] for n in numbers],
                    self.device_dense,
                    self.device_sparse,
                    self.compression,
                    ScaledOp(known_op(self.op), prescale, postscale),
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


class GradientAccumulator:
    """Sums the gradients of several steps. All ranks count the same steps, and reduce at the same ones.

    Args:
        passes: The number of steps to sum up.
        average: Whether to divide the sum by ``passes``.
    """

    def __init__(self, passes: int, average: bool) -> None:
        self._passes = passes
        self._average = average
        self._sums: dict[int, Any] = {}
        """Dense variables by index of the gradient: the number of slices differs between steps."""
        self.counter: Any = None
        """A variable that counts the steps since the last sum; None before the first step."""

    def add(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        step: Callable[[list[Any]], Any],
        skip: Callable[[], Any],
    ) -> None:
        """Call ``step`` with the sums at the last of the passes, and ``skip`` at the others."""
        self._make(gradients, variables)
        for n, total in self._sums.items():
            gradient = gradients[n]
            if isinstance(gradient, tf.IndexedSlices):
                total.scatter_add(gradient)
            else:
                total.assign_add(gradient)

        def last() -> Any:
            divisor = self._passes if self._average else 1
            sums = [self._sums[n] / divisor if n in self._sums else None for n in range(len(gradients))]
            step(sums)
            for total in self._sums.values():
                total.assign(tf.zeros_like(total))
            return self.counter.assign(0)

        def not_yet() -> Any:
            skip()
            return self.counter.assign_add(1)

        tf.cond(tf.equal(self.counter + 1, self._passes), last, not_yet)

    def _make(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        with tf.init_scope():
            if self.counter is None:
                self.counter = tf.Variable(0, trainable=False, dtype=tf.int32)
            for n, (gradient, variable) in enumerate(zip(gradients, variables)):
                if gradient is not None and n not in self._sums:
                    self._sums[n] = tf.Variable(tf.zeros(variable.shape, gradient.dtype), trainable=False)
