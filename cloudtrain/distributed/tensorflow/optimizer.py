"""``DistributedOptimizer`` for every optimizer that runs on TensorFlow: Keras 3, tf_keras, TensorFlow 1.

A wrapped Keras optimizer gets a class of the same name and module, with `Distributed` before its own class in the
method resolution order, so that a saved model loads without cloudtrain. All Keras versions apply gradients in a single
method, before clipping: Keras 3 in ``apply``, tf_keras in ``apply_gradients``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from cloudtrain.distributed._gradients import Compressor, check_passes, warn_num_groups
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, ReduceOp, Sum
from cloudtrain.distributed.tensorflow._bridge import Compression, choose_without_xla, no_autograph
from cloudtrain.distributed.tensorflow._context import global_process_set
from cloudtrain.distributed.tensorflow._gradients import GradientAccumulator, GradientReducer


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Make ``optimizer`` average gradients across ranks before every step.

    `cloudtrain.distributed.keras.DistributedOptimizer` documents the arguments. A TensorFlow 1 optimizer is wrapped,
    and averages in ``compute_gradients``; all others are changed in place.

    Args:
        use_locking: For TensorFlow 1 optimizers.

    Raises:
        InvalidArgument: The options are contradictory, or the optimizer is not supported.
    """
    warn_num_groups(num_groups)
    is_v1 = isinstance(optimizer, tf.compat.v1.train.Optimizer)
    if is_v1 and backward_passes_per_step != 1:
        raise InvalidArgument(
            "backward_passes_per_step > 1 is not supported for TensorFlow 1 optimizers",
            hint="Use an optimizer from tf.keras.optimizers.",
        )
    if not is_v1 and op not in (Average, Sum):
        raise InvalidArgument(
            "op currently only supports Average and Sum", hint="Use DistributedGradientTape for Adasum."
        )
    name = name or f"Distributed{type(optimizer).__name__}"
    reducer = GradientReducer(
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        groups,
        process_set,
        scale_local_gradients,
    )
    if is_v1:
        return _DistributedV1(optimizer, name, use_locking, reducer)
    return distribute(optimizer, reducer, backward_passes_per_step, average_aggregated_gradients)


def distribute(optimizer: Any, reducer: GradientReducer, passes: int, average_passes: bool) -> Any:
    """Make a Keras optimizer reduce gradients with ``reducer``. Return the same object, with its state.

    Args:
        passes: The number of steps whose gradients are summed on the rank before they are reduced.
        average_passes: Whether to divide that sum by ``passes``.

    Raises:
        InvalidArgument: The optimizer is not one of Keras on TensorFlow, or is already distributed.
    """
    base = type(optimizer)
    if isinstance(optimizer, Distributed):
        raise InvalidArgument("the optimizer is already a DistributedOptimizer")
    check_passes(passes)
    if is_keras_3(optimizer):
        import keras

        _check_backend(keras.backend.backend())
        choose_without_xla(keras)
        _skip_steps_together(keras.optimizers.LossScaleOptimizer)
        mixin: type[Distributed] = _DistributedKeras3
    elif hasattr(optimizer, "apply_gradients"):
        mixin = _DistributedTfKeras
    else:
        raise InvalidArgument(f"{base.__name__} is not a Keras optimizer")
    reducer.compares_weights = True
    # class attributes, so that an optimizer made by from_config has them, too
    settings = {"_reducer": reducer, "_passes": passes, "_average_passes": average_passes}
    optimizer.__class__ = type(base.__name__, (mixin, base), {"__module__": _public_module(base), **settings})
    return optimizer


def is_keras_3(optimizer: Any) -> bool:
    return any(base.__module__.split(".")[0] == "keras" for base in type(optimizer).__mro__) and hasattr(
        optimizer, "apply"
    )


def variables_of(optimizer: Any) -> list[Any]:
    """Return an optimizer's variables, for every version of Keras."""
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


class Distributed:
    """Precedes the optimizer's own class in the method resolution order."""

    _reducer: GradientReducer
    _passes: int
    _average_passes: bool

    def register_local_var(self, var: Any) -> None:
        """Exclude the gradient of ``var`` from the reduction."""
        self._reducer.keep_local(var)

    def _accumulator(self) -> GradientAccumulator | None:
        """None if gradients are reduced at every step."""
        if self._passes == 1:
            return None
        made: GradientAccumulator | None = vars(self).get("_agg_helper")  # scripts read Horovod's name
        if made is None:
            made = GradientAccumulator(self._passes, self._average_passes)
            vars(self)["_agg_helper"] = made  # not by assignment, which Keras tracks
        return made


class _DistributedKeras3(Distributed):
    built: bool
    name: str
    iterations: Any

    @no_autograph
    def apply(self, grads: Iterable[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """See the optimizer's own ``apply``. Gradients are reduced first."""
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
        if not self.built:  # variables cannot be created inside the tf.cond of the accumulator
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

    @no_autograph
    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[Any]:
        """See the optimizer's own method. The gradients are reduced, unless those of several steps are summed first:
        then ``apply_gradients`` does both."""
        base: Any = super()
        if hasattr(base, "_compute_gradients"):
            pairs = list(base._compute_gradients(loss, var_list, grad_loss, tape))
        else:
            pairs = list(base.compute_gradients(loss, var_list, tape))
        if self._passes > 1:
            return pairs
        variables = [variable for _, variable in pairs]
        reduced = self._reducer.reduce([gradient for gradient, _ in pairs], variables)
        if self._reducer.op == Sum:  # changed gradients lose the mark below, and would be summed again
            vars(self)["_summed_for"] = {id(variable) for variable in variables}
        for gradient in reduced:
            if gradient is not None:
                gradient._reduced_for = id(self._reducer)  # minimize passes it on to apply_gradients
        return list(zip(reduced, variables))

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> list[Any]:
        return self._compute_gradients(loss, var_list, None, tape)

    @no_autograph
    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]], *args: Any, **kwargs: Any) -> Any:
        """See the optimizer's own ``apply_gradients``. Gradients are reduced first. Return the iteration count."""
        base: Any = super()
        pairs = list(grads_and_vars)
        gradients, variables = [gradient for gradient, _ in pairs], [variable for _, variable in pairs]
        summed_for: set[int] = vars(self).pop("_summed_for", set())

        def step(sums: Sequence[Any]) -> Any:
            given = [one for one in sums if one is not None]
            marked = all(getattr(one, "_reduced_for", None) == id(self._reducer) for one in given)
            if given and (marked or summed_for.issuperset(map(id, variables))):
                reduced = list(sums)
            else:
                reduced = self._reducer.reduce(sums, variables)
            return base.apply_gradients(list(zip(reduced, variables)), *args, **kwargs)

        accumulator = self._accumulator()
        if accumulator is None:
            return step(gradients)
        accumulator.add(gradients, variables, step, lambda: self.iterations.assign_add(1))
        return tf.identity(self.iterations)


class _DistributedV1(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    def __init__(self, optimizer: Any, name: str, use_locking: bool, reducer: GradientReducer) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer
        self._reducer = reducer

    def register_local_var(self, var: Any) -> None:
        """Exclude the gradient of ``var`` from the reduction."""
        self._reducer.keep_local(var)

    @no_autograph
    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """See the optimizer's own ``compute_gradients``. The gradients are reduced."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        gradients, variables = [gradient for gradient, _ in pairs], [variable for _, variable in pairs]
        return list(zip(self._reducer.reduce(gradients, variables), variables))

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        return self._optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.variables(*args, **kwargs)


def _skip_steps_together(scaling: Any) -> None:
    """Make a Keras 3 ``LossScaleOptimizer`` around a distributed optimizer skip the steps that any rank has to skip.

    ``compile`` adds one to a model of mixed_float16. A rank that skipped a step alone would leave the others waiting.
    """
    original = scaling.check_finite
    if hasattr(original, "__wrapped__"):
        return

    @no_autograph
    @functools.wraps(original)
    def check_finite(self: Any, grads: Any) -> Any:
        finite, inner = original(self, grads), self.inner_optimizer
        return inner._reducer.on_all_ranks(finite) if isinstance(inner, Distributed) else finite

    scaling.check_finite = check_finite


def _public_module(base: type[Any]) -> str:
    """Return the module that a saved model refers to: Keras 3 looks up its own classes by their public module."""
    if base.__module__.split(".")[0] == "keras":
        import keras

        if getattr(keras.optimizers, base.__name__, None) is base:
            return "keras.optimizers"
    return base.__module__


def _check_backend(backend: str) -> None:
    if backend != "tensorflow":
        raise InvalidArgument(
            f"Keras uses the {backend} backend; DistributedOptimizer supports TensorFlow only",
            hint="Set KERAS_BACKEND=tensorflow.",
        )
