"""``DistributedOptimizer`` with Horovod's order of arguments for Keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloudtrain.distributed._gradients import Compressor, warn_num_groups
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, ReduceOp
from cloudtrain.distributed.tensorflow import optimizer as tensorflow_optimizer
from cloudtrain.distributed.tensorflow._bridge import Compression
from cloudtrain.distributed.tensorflow._context import global_process_set
from cloudtrain.distributed.tensorflow.tape import with_local_layers


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
    """Make ``optimizer`` average gradients across ranks before every step, in ``fit`` and in custom training loops.

    The same object is returned, with its state. A model saved with it loads without cloudtrain, with a plain optimizer;
    `load_model` makes the optimizer distributed again. All gradients of a step are sent in one operation.

    For mixed precision, wrap the optimizer that scales the loss:
    ``DistributedOptimizer(LossScaleOptimizer(optimizer))``. Then all ranks skip the same steps, without another
    collective. The ``LossScaleOptimizer`` that ``compile`` adds to a model of mixed_float16 needs one per step.

    Args:
        optimizer: An optimizer of Keras 3 on TensorFlow, or of tf_keras, including legacy ones.
        name: The name by which ranks match the operation. Several optimizers may share a name.
        device_dense: The device that reduces; the default leaves gradients where they are.
        device_sparse: The same for IndexedSlices.
        compression: Applied to gradients while they are sent.
        sparse_as_dense: Reduce IndexedSlices as dense tensors, instead of gathering their slices.
        gradient_predivide_factor: Splits the division of Average: gradients are divided by it before the sum, and
            multiplied by it and divided by the number of ranks after the sum.
        op: Average or Sum.
        backward_passes_per_step: The number of steps whose gradients are summed on the rank before they are reduced.
            Variables change at the last of these steps only; ``iterations`` counts all.
        average_aggregated_gradients: Divide that sum by ``backward_passes_per_step``.
        num_groups: Deprecated; use ``groups``.
        groups: Accepted for compatibility. All gradients are sent in one operation.
        process_set: The ranks that reduce. On other ranks, gradients are unchanged.
        scale_local_gradients: Divide the gradients of variables given to ``register_local_var`` by the number of ranks,
            because the global loss is the mean of the ranks' losses.

    Raises:
        InvalidArgument: The options are contradictory, or the optimizer is not supported.
    """
    warn_num_groups(num_groups)
    return tensorflow_optimizer.DistributedOptimizer(
        optimizer,
        name,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        backward_passes_per_step=backward_passes_per_step,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )


PartialDistributedOptimizer = with_local_layers(
    DistributedOptimizer, "register_local_var", without=["num_groups"]
)
