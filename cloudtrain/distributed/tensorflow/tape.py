"""Gradients over all ranks for loops of one's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, ReduceOp
from cloudtrain.distributed.tensorflow._crossing import as_written
from cloudtrain.distributed.tensorflow._gradients import GradientReducer
from cloudtrain.distributed.tensorflow._session import global_process_set
from cloudtrain.distributed.tensorflow.compression import Compression, Compressor


@as_written
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
    """``gradtape``, whose ``gradient`` is that of all ranks: the average, unless told.

    It is the tape itself, with what it has recorded. Sources of which a rank has no gradient have none on all ranks.

    Args:
        device_dense: where to reduce; see `cloudtrain.distributed.tensorflow`.
        device_sparse: the same for IndexedSlices.
        compression: of gradients on the wire.
        sparse_as_dense: IndexedSlices travel as dense tensors; otherwise their slices are gathered.
        op: Average, Sum, or Adasum of dense gradients (Maleki et al. 2020, https://arxiv.org/abs/2006.02924).
        gradient_predivide_factor: splits the division of Average: gradients are divided by it before the sum, and
            multiplied by it and divided by the number of ranks after the sum.
        num_groups: deprecated; ``groups``.
        groups: gradients that travel together. Here all do, so that it changes nothing.
        process_set: the ranks among which gradients travel; on other ranks they stay as they are.
        scale_local_gradients: of sources given to ``register_local_source``, divide gradients by the number of
            ranks, as the loss of all ranks is their average.

    Raises:
        InvalidArgument: arguments that do not fit each other.
    """
    reducer = GradientReducer(
        "DistributedGradientTape",
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
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


@as_written
def PartialDistributedGradientTape(
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
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """`DistributedGradientTape` in which the gradients of ``local_layers``, one or several, stay this rank's own."""
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    for variable in weights_of_layers(local_layers):
        tape.register_local_source(variable)
    return tape


def weights_of_layers(layers: Any) -> list[Any]:
    """The variables that a layer, or each of several, trains. Raises InvalidArgument for what is no layer."""
    several = layers if isinstance(layers, Iterable) else [] if layers is None else [layers]
    weights: list[Any] = []
    for layer in several:
        if not hasattr(layer, "trainable_weights"):
            raise InvalidArgument("All local layers must be of tf.keras.layers.Layer type.")
        weights += layer.trainable_weights
    return weights


class _DistributedTape:
    """Stands before the tape's own class in the order of resolution."""

    _reducer: GradientReducer

    def register_local_source(self, source: Any) -> None:
        """The gradient of ``source`` stays this rank's own."""
        self._reducer.keep_local(source)

    @as_written
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
        use_generic_names: bool = False,
    ) -> Any:
        """As ``tf.GradientTape.gradient``. ``use_generic_names`` is Horovod's, and has no meaning here."""
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
        """Pairs of source and gradient: those that stay this rank's own, and those of all ranks."""
        pairs = list(zip(sources, self.gradient(target, sources, output_gradients)))
        local = [pair for pair in pairs if self._reducer.is_local(pair[0])]
        return local, [pair for pair in pairs if not self._reducer.is_local(pair[0])]
