"""Broadcasts of variables and objects, so that all ranks start with the same state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Callable

import tensorflow as tf

import cloudtrain.distributed.numpy as hvd
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.numpy._backend import Array
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.tensorflow._bridge import call_numpy, in_graph_1, operation
from cloudtrain.distributed.tensorflow._context import global_process_set, gpus_for

__all__ = [
    "BroadcastGlobalVariablesHook",
    "allgather_object",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
]


@operation
def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Overwrite variables with the root's.

    Args:
        variables: TensorFlow or Keras variables, with the same shapes and types in the same order on all ranks.
        inplace: Accepted for compatibility. Variables are always assigned to.

    Returns:
        In a TensorFlow 1 graph, the operation to run; else None.

    Raises:
        InvalidArgument: In eager mode, if the ranks' variables differ. Names the first difference.
    """
    own = list(variables)
    if tf.executing_eagerly():
        _check_equal(own, process_set)
    values = broadcast_(own, root_rank, process_set=process_set)
    return tf.group(*values) if in_graph_1() else None


@operation
def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """`broadcast_variables` without its check. Return the new values."""
    own = list(variables)
    if not own:
        return []
    prefix = name or "broadcast_variables"
    values = [tf.convert_to_tensor(variable) for variable in own]

    def broadcast(arrays: list[Array]) -> Sequence[Array]:
        handles = [
            hvd.broadcast_async(array, root_rank, name=f"{prefix} {number}", process_set=process_set)
            for number, array in enumerate(arrays)
        ]
        return [handle.wait() for handle in handles]

    gpus = gpus_for(values, process_set)
    if gpus is not None:
        results = [gpus.broadcast(value, root_rank, f"{prefix} {n}") for n, value in enumerate(values)]
    else:
        results = call_numpy(broadcast, values, [(value.dtype, value.shape) for value in values])
    assigned = [variable.assign(result) for variable, result in zip(own, results)]
    return results if tf.executing_eagerly() else assigned


def broadcast_global_variables(root_rank: int) -> Any:
    """Return the operation that overwrites all variables of a TensorFlow 1 graph with the root's.

    Raises:
        InvalidArgument: Outside such a graph there are no global variables. Also a RuntimeError.
    """
    if tf.executing_eagerly():
        raise NoGlobalVariables
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class NoGlobalVariables(InvalidArgument, RuntimeError):
    """TensorFlow keeps no list of all variables in eager mode."""

    def __init__(self) -> None:
        super().__init__(
            "hvd.broadcast_global_variables() does not support eager execution",
            hint="Use hvd.broadcast_variables(model.variables, root_rank=0).",
        )


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Runs `broadcast_global_variables` when a TensorFlow 1 ``MonitoredSession`` starts."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.bcast_op: Any = None

    def begin(self) -> None:
        """Called before the graph is finalized."""
        if self.bcast_op is None or self.bcast_op.graph != tf.compat.v1.get_default_graph():
            with tf.device(self.device or None):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self.bcast_op)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the root's ``obj``, pickled. The ``obj`` of other ranks is ignored.

    Args:
        session: Accepted for compatibility. Objects are not sent through a graph.
    """
    return hvd.broadcast_object(obj, root_rank, name=name, process_set=process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Return `broadcast_object` with all arguments bound but ``obj``."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return the ``obj`` of every rank, pickled, in order of rank. See `broadcast_object`."""
    return hvd.allgather_object(obj, name=name, process_set=process_set)


def _check_equal(variables: Sequence[Any], process_set: ProcessSet) -> None:
    """Raises InvalidArgument on all ranks if their variables differ."""
    own = [(str(tf.as_dtype(one.dtype).name), list(one.shape)) for one in variables]
    everyone = hvd.allgather_object(own, name="broadcast_variables", process_set=process_set)
    for rank, other in zip(process_set.members(), everyone):
        if other == everyone[0]:
            continue
        first = process_set.members()[0]
        if len(other) != len(everyone[0]):
            difference = f"rank {first} has {len(everyone[0])} variables, rank {rank} has {len(other)}"
        else:
            number = next(n for n, pair in enumerate(zip(everyone[0], other)) if pair[0] != pair[1])
            (type_, shape), (other_type, other_shape) = everyone[0][number], other[number]
            difference = (
                f"variable {number} ({variables[number].name}) is {type_} {shape} on rank {first} and "
                f"{other_type} {other_shape} on rank {rank}"
            )
        raise InvalidArgument(
            f"broadcast_variables: {difference}",
            hint="Build the same model and optimizer on all ranks first.",
        )
