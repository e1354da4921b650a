"""Keras optimizers that step with the gradients of all ranks.

An optimizer gets a class of the same name and module, with `Distributed` before its own in the order of resolution:
what is saved with it loads without cloudtrain. Every Keras hands gradients over in one place: Keras 3 calls ``apply``,
tf_keras ``apply_gradients``. Both are before gradients are clipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.keras._accumulator import GradientAccumulator
from cloudtrain.distributed.tensorflow._crossing import as_written
from cloudtrain.distributed.tensorflow._gradients import GradientReducer


def distribute(optimizer: Any, reducer: GradientReducer, passes: int, average_passes: bool) -> Any:
    """``optimizer`` itself, with all its state, whose steps reduce gradients by ``reducer`` first.

    Args:
        passes: steps whose gradients are summed up on the rank before they travel.
        average_passes: divide that sum by ``passes``.

    Raises:
        InvalidArgument: it is no optimizer of a Keras on TensorFlow, or is distributed already.
    """
    base = type(optimizer)
    if isinstance(optimizer, Distributed):
        raise InvalidArgument("the optimizer is a DistributedOptimizer already")
    if passes < 1:
        raise InvalidArgument(f"backward_passes_per_step must be > 0, not {passes}")
    if is_keras_3(optimizer):
        _check_backend()
        mixin: type[Distributed] = _DistributedKeras3
    elif hasattr(optimizer, "apply_gradients"):
        mixin = _DistributedTfKeras
    else:
        raise InvalidArgument(f"a {base.__name__} is no Keras optimizer")
    # of the class, so that what from_config makes has them too
    settings = {"_reducer": reducer, "_passes": passes, "_average_passes": average_passes}
    optimizer.__class__ = type(base.__name__, (mixin, base), {"__module__": _public_module(base), **settings})
    return optimizer


def is_keras_3(optimizer: Any) -> bool:
    return any(base.__module__.split(".")[0] == "keras" for base in type(optimizer).__mro__) and hasattr(
        optimizer, "apply"
    )


def variables_of(optimizer: Any) -> list[Any]:
    """An optimizer's variables, of any Keras."""
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


class Distributed:
    """Stands before the optimizer's own class in the order of resolution."""

    _reducer: GradientReducer
    _passes: int
    _average_passes: bool

    def register_local_var(self, var: Any) -> None:
        """The gradient of ``var`` stays this rank's own."""
        self._reducer.keep_local(var)

    def _accumulator(self) -> GradientAccumulator | None:
        """None where every step's gradients travel. Scripts read it under Horovod's name for it."""
        if self._passes == 1:
            return None
        made: GradientAccumulator | None = vars(self).get("_agg_helper")
        if made is None:
            made = GradientAccumulator(self._passes, self._average_passes)
            vars(self)["_agg_helper"] = made  # not by assignment, which Keras watches
        return made


class _DistributedKeras3(Distributed):
    built: bool
    name: str
    iterations: Any

    @as_written
    def apply(self, grads: Iterable[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """As the optimizer's own, with the gradients of all ranks."""
        base: Any = super()
        given: Any = self
        own = list(grads)
        if not own:
            return
        variables = list(given._trainable_variables if trainable_variables is None else trainable_variables)
        accumulator = self._accumulator()
        if accumulator is None:
            base.apply(self._reducer.reduce(own, variables), variables)
            return
        if not self.built:  # no variables can be made where it depends on a number whether they are
            with tf.init_scope(), tf.name_scope(self.name):
                given.build(variables)
            self.built = True
        accumulator.add(
            own,
            variables,
            lambda sums: base.apply(self._reducer.reduce(sums, variables), variables),
            lambda: self.iterations.assign_add(1),
        )


class _DistributedTfKeras(Distributed):
    iterations: Any

    @as_written
    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]], *args: Any, **kwargs: Any) -> Any:
        """As the optimizer's own, with the gradients of all ranks; the number of steps so far."""
        base: Any = super()
        pairs = list(grads_and_vars)
        gradients, variables = [gradient for gradient, _ in pairs], [variable for _, variable in pairs]

        def step(sums: Sequence[Any]) -> Any:
            reduced = self._reducer.reduce(sums, variables)
            return base.apply_gradients(list(zip(reduced, variables)), *args, **kwargs)

        accumulator = self._accumulator()
        if accumulator is None:
            return step(gradients)
        accumulator.add(gradients, variables, step, lambda: self.iterations.assign_add(1))
        return tf.identity(self.iterations)


def _public_module(base: type[Any]) -> str:
    """Where a class is to be found by who loads it: Keras 3 looks for its own classes by their public names."""
    if base.__module__.split(".")[0] == "keras":
        import keras

        if getattr(keras.optimizers, base.__name__, None) is base:
            return "keras.optimizers"
    return base.__module__


def _check_backend() -> None:
    import keras

    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise InvalidArgument(
            f"Keras runs on {backend} here, DistributedOptimizer only on TensorFlow",
            hint="Set KERAS_BACKEND=tensorflow.",
        )
