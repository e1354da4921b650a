"""The gradients of a step, reduced across ranks, or accumulated over several steps first."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable

import numpy as np
import tensorflow as tf

import cloudtrain.distributed.numpy as hvd
from cloudtrain.distributed._gradients import Compressor, check_predivide_factor, report_different_weights
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.numpy import _context as numpy_context
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, Max, ReduceOp, ScaledOp, Sum, known_op
from cloudtrain.distributed.tensorflow._bridge import Compression
from cloudtrain.distributed.tensorflow._context import global_process_set
from cloudtrain.distributed.tensorflow._differentiable import no_op
from cloudtrain.distributed.tensorflow.collectives import allreduce, reduce_group
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
    compares_weights: bool = False
    """Whether to warn, at the second step, of weights that differ between ranks."""
    awaits_broadcast: bool = False
    """Whether a callback has yet to broadcast the weights; steps are counted from then on."""
    _steps: int = 0
    _counted_with: Any = None
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
        # If only shapes had to match, the gradients of different variables could be added.
        without = [n for n, gradient in enumerate(results) if gradient is None]
        must_match = {"variables without a gradient (by number)": without} if without else {}
        for n, reduced in zip(numbers, self._reduced(own, must_match, [variables[n] for n in numbers])):
            results[n] = reduced
        return results

    def on_all_ranks(self, condition: Any) -> Any:
        """Whether ``condition``, a tensor, is true on all ranks that reduce."""
        if not self.process_set.included() or self.process_set.size() == 1:
            return condition
        count = allreduce(
            tf.cast(condition, tf.float32),
            device_dense=self.device_dense,
            op=Sum,
            name=f"{self.name}.finite",
            process_set=self.process_set,
        )
        return tf.equal(count, self.process_set.size())

    def _reduced(
        self, gradients: list[Any], must_match: Mapping[str, Any], variables: list[Any]
    ) -> list[Any]:
        compares = self.compares_weights and tf.compat.v1.executing_eagerly_outside_functions()
        in_graph = not tf.executing_eagerly()

        def ended() -> None:
            recorder.step_ended()
            if compares and in_graph:
                self._count_step(variables)

        factor = self.gradient_predivide_factor
        sparse = [n for n, one in enumerate(gradients) if isinstance(one, tf.IndexedSlices)]
        dense = [n for n in range(len(gradients)) if n not in set(sparse)]
        results = list(gradients)
        for numbers, prescale, postscale, then in (
            (dense, 1.0 / factor, factor, no_op if sparse else ended),
            (sparse, 1.0, 1.0, ended),
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
                    must_match,
                )
                for n, one in zip(numbers, reduced):
                    results[n] = one
        if compares and not in_graph:  # in eager mode, a tape would record what `ended` reads
            self._count_step(variables)
        return results

    def _count_step(self, variables: list[Any]) -> None:
        if self.awaits_broadcast:
            return
        backend = numpy_context.current()
        self._steps = self._steps + 1 if self._counted_with is backend else 1  # back to 1 after a reset
        self._counted_with = backend
        if self._steps == 2:  # loops broadcast the weights after the first step
            warn_of_different_weights(variables, self.name, self.process_set)


def warn_of_different_weights(variables: Sequence[Any], name: str, process_set: ProcessSet) -> None:
    """Compare the bits of ``variables`` between the ranks of ``process_set``, which all call this.

    Only warns, because Horovod trains models with different weights, too.
    """
    arrays = [np.ascontiguousarray(variable.numpy()) for variable in variables]
    sums = np.array([zlib.crc32(array.view(np.uint8).data) for array in arrays])
    # The largest, and the complement of the smallest. A rank that has joined contributes zeros to all.
    most, least = hvd.allreduce(
        np.stack([np.append(sums, -1), np.append(~sums, -1)]),
        name=f"{name}.weights",
        op=Max,
        process_set=process_set,
    )
    different = [
        getattr(one, "path", one.name) for one, high, low in zip(variables, most, ~least) if high != low
    ]
    report_different_weights(
        different,
        process_set.rank() == 0 and most[-1] != 0,
        "the ranks' weights differ",
        "Train the same variables in the same order on all ranks, and broadcast them (hvd.broadcast_variables, or "
        "BroadcastGlobalVariablesCallback in fit), also after weights are restored",
    )


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
        """Dense variables by index of the gradient. They are not slices, whose number differs between steps."""
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
