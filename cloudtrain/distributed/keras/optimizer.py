"""``DistributedOptimizer`` of Keras 3 on TensorFlow, and of tf_keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.keras._optimizer import distribute
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, ReduceOp, Sum
from cloudtrain.distributed.tensorflow._gradients import GradientReducer
from cloudtrain.distributed.tensorflow._session import global_process_set
from cloudtrain.distributed.tensorflow.compression import Compression, Compressor
from cloudtrain.distributed.tensorflow.tape import weights_of_layers


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """``optimizer``, whose steps average gradients over ranks first: in ``fit`` and in loops of one's own.

    It is the optimizer itself, with its state. A model saved with it loads without cloudtrain, and its optimizer is
    a plain one then; `load_model` makes it a distributed one again. All gradients of a step travel as one operation.

    With mixed precision wrap the optimizer that scales the loss:
    ``DistributedOptimizer(LossScaleOptimizer(optimizer))``, so that all ranks skip the same steps.

    Args:
        optimizer: of Keras 3 on TensorFlow, or of tf_keras, its legacy ones too.
        name: what ranks match the operation by. Two optimizers of a program need no different ones.
        device_dense: where to reduce; see `cloudtrain.distributed.tensorflow`.
        device_sparse: the same for IndexedSlices.
        compression: of gradients on the wire.
        sparse_as_dense: IndexedSlices travel as dense tensors; otherwise their slices are gathered.
        gradient_predivide_factor: splits the division of Average: gradients are divided by it before the sum, and
            multiplied by it and divided by the number of ranks after the sum.
        op: Average or Sum.
        backward_passes_per_step: steps whose gradients are summed up on the rank before they travel; variables
            change at the last of them only, and ``iterations`` counts all.
        average_aggregated_gradients: divide that sum by ``backward_passes_per_step``.
        num_groups: deprecated; ``groups``.
        groups: gradients that travel together. Here all do, so that it changes nothing.
        process_set: the ranks among which gradients travel; on other ranks steps are the optimizer's own.
        scale_local_gradients: of variables given to ``register_local_var``, divide gradients by the number of ranks,
            as the loss of all ranks is their average.

    Raises:
        InvalidArgument: arguments that do not fit each other, or an optimizer that cannot be wrapped.
    """
    if op not in (Average, Sum):
        raise InvalidArgument(
            "op currently only supports Average and Sum", hint="Use DistributedGradientTape for Adasum."
        )
    reducer = GradientReducer(
        name or f"Distributed{type(optimizer).__name__}",
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
    return distribute(optimizer, reducer, backward_passes_per_step, average_aggregated_gradients)


def PartialDistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """`DistributedOptimizer` in which the gradients of ``local_layers``, one or several, stay this rank's own.

    The layers are built already.
    """
    wrapped = DistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        backward_passes_per_step,
        average_aggregated_gradients,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    for variable in weights_of_layers(local_layers):
        wrapped.register_local_var(variable)
    return wrapped
