"""Gradient tapes for custom training loops."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Sequence
from typing import Any, Callable

import tensorflow as tf

from cloudtrain.distributed._gradients import Compressor, warn_num_groups
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, ReduceOp
from cloudtrain.distributed.tensorflow._bridge import Compression, no_autograph
from cloudtrain.distributed.tensorflow._context import global_process_set
from cloudtrain.distributed.tensorflow._gradients import GradientReducer

__all__ = [
    "DistributedGradientTape",
    "PartialDistributedGradientTape",
]


@no_autograph
def DistributedGradientTape(
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Make ``gradtape.gradient`` return gradients reduced across ranks, and return ``gradtape`` itself.

    A source without a gradient on one rank has none on all ranks.

    `cloudtrain.distributed.keras.DistributedOptimizer` documents the other arguments.

    Args:
        op: Average, Sum, or Adasum for dense gradients (Maleki et al. 2020, https://arxiv.org/abs/2006.02924).
        scale_local_gradients: Divide the gradients of sources given to ``register_local_source`` by the number of
            ranks, because the global loss is the mean of the ranks' losses.

    Raises:
        InvalidArgument: The options are contradictory.
    """
    warn_num_groups(num_groups)
    reducer = GradientReducer(
        "DistributedGradientTape",
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
    if isinstance(gradtape, _DistributedTape):
        raise InvalidArgument("the tape is a DistributedGradientTape already")
    base = type(gradtape)
    gradtape.__class__ = type(base.__name__, (_DistributedTape, base), {"__module__": base.__module__})
    gradtape._reducer = reducer
    return gradtape


def with_local_layers(
    template: Callable[..., Any], register: str, without: Sequence[str] = ()
) -> Callable[..., Any]:
    """``template`` with the argument ``local_layers`` before its last one: a layer, or several, to leave out.

    Args:
        register: The method of the result that excludes the gradient of a variable from the reduction.
        without: Arguments that Horovod does not have here.
    """
    signature = inspect.signature(template)
    *first, last = [one for one in signature.parameters.values() if one.name not in without]
    local = inspect.Parameter("local_layers", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
    signature = signature.replace(parameters=[*first, local, last])

    @functools.wraps(template)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        variables = weights_of_layers(given.pop("local_layers", None))
        wrapped = template(**given)
        for variable in variables:
            getattr(wrapped, register)(variable)
        return wrapped

    call.__name__ = call.__qualname__ = f"Partial{template.__name__}"
    call.__doc__ = f"`{template.__name__}` without the gradients of ``local_layers``, which are built layers."
    call.__signature__ = signature  # type: ignore[attr-defined]
    made: Callable[..., Any] = no_autograph(call)
    return made


def weights_of_layers(layers: Any) -> list[Any]:
    """Return the trainable weights of a layer or several. Raises InvalidArgument for other objects."""
    several = layers if isinstance(layers, Iterable) else [] if layers is None else [layers]
    weights: list[Any] = []
    for layer in several:
        if not hasattr(layer, "trainable_weights"):
            raise InvalidArgument("All local layers must be of tf.keras.layers.Layer type.")
        weights += layer.trainable_weights
    return weights


PartialDistributedGradientTape = with_local_layers(DistributedGradientTape, "register_local_source")


class _DistributedTape:
    """Precedes the tape's own class in the method resolution order."""

    _reducer: GradientReducer

    def register_local_source(self, source: Any) -> None:
        """Exclude the gradient of ``source`` from the reduction."""
        self._reducer.keep_local(source)

    @no_autograph
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
        use_generic_names: bool = False,
    ) -> Any:
        """See ``tf.GradientTape.gradient``. ``use_generic_names`` is accepted for compatibility with Horovod."""
        base: Any = super()
        own = base.gradient(target, sources, output_gradients, unconnected_gradients)
        flat = tf.nest.flatten(own)
        reduced = self._reducer.reduce(flat, tf.nest.flatten(sources))
        return tf.nest.pack_sequence_as(own, reduced)

    def get_local_and_global_gradients(
        self,
        target: Any,
        sources: Sequence[Any],
        output_gradients: Any = None,
        use_generic_names: bool = False,
    ) -> tuple[list[Any], list[Any]]:
        """Return (source, gradient) pairs: those excluded from the reduction, and those reduced."""
        pairs = list(zip(sources, self.gradient(target, sources, output_gradients)))
        local = [pair for pair in pairs if self._reducer.is_local(pair[0])]
        return local, [pair for pair in pairs if not self._reducer.is_local(pair[0])]
