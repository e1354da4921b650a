"""Gradients of several steps, summed up on the rank before they travel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf


class GradientAccumulator:
    """All ranks count the same steps, so that all take part in a reduction or none.

    Args:
        passes: after so many the sum is handed on.
        average: divide it by ``passes``.
    """

    def __init__(self, passes: int, average: bool) -> None:
        self._passes = passes
        self._average = average
        self._sums: dict[int, Any] = {}
        """By place among the gradients; a dense variable each, as slices of several steps differ in number."""
        self.counter: Any = None
        """Steps since the last sum was handed on, as a variable; None before the first."""

    def add(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        step: Callable[[list[Any]], Any],
        skip: Callable[[], Any],
    ) -> None:
        """Call ``step`` with the sums if this is the last of the passes, else ``skip``."""
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
