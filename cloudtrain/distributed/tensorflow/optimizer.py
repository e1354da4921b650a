"""``DistributedOptimizer`` of any optimizer that runs on TensorFlow."""

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
    """``optimizer``, whose steps average gradients over ranks first.

    An optimizer of Keras is given to `cloudtrain.distributed.keras.DistributedOptimizer`, where the arguments are
    explained. For an optimizer of TensorFlow 1, gradients are averaged in ``compute_gradients``.

    Args:
        use_locking: of an optimizer of TensorFlow 1.

    Raises:
        InvalidArgument: arguments that do not fit each other, or an optimizer that cannot be wrapped.
    """
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        from cloudtrain.distributed.keras.optimizer import DistributedOptimizer as of_keras

        return of_keras(
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
            num_groups,
            groups,
            process_set,
            scale_local_gradients,
        )
    if backward_passes_per_step != 1:
        raise InvalidArgument(
            "backward_passes_per_step > 1 is not offered for optimizers of TensorFlow 1",
            hint="Use an optimizer of tf.keras.optimizers.",
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
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    return _DistributedV1(optimizer, name, use_locking, reducer)


class _DistributedV1(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    def __init__(self, optimizer: Any, name: str, use_locking: bool, reducer: GradientReducer) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer
        self._reducer = reducer

    def register_local_var(self, var: Any) -> None:
        """The gradient of ``var`` stays this rank's own."""
        self._reducer.keep_local(var)

    @as_written
    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """As the optimizer's own, with the gradients of all ranks."""
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
