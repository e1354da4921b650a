"""Horovod's collectives on MXNet arrays. All wait for their result. GPU arrays are copied through host memory.

Names, arguments and their order are Horovod's. `cloudtrain.distributed.numpy.collectives` describes the matching of
ranks and the errors. ``priority`` is accepted for compatibility.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mxnet as mx

import cloudtrain.distributed.numpy as core
from cloudtrain.distributed._api import same_arguments, single
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.numpy import Average, ProcessSet, ReduceOp, global_process_set
from cloudtrain.distributed.numpy._backend import Array
from cloudtrain.distributed.reduce_op import ScaledOp, chosen_op

__all__ = [
    "InvalidSplits",
    "allgather",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "reducescatter",
]


class InvalidSplits(InvalidArgument, mx.MXNetError):  # type: ignore[misc]
    """Invalid splits in `alltoall`, where Horovod raises an MXNetError."""


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: ReduceOp | None = None,
) -> list[Any]:
    """Reduce each of ``tensors`` across ranks, in one operation. They are not changed.

    Args:
        tensors: Of the same shapes and types on all ranks.
        average: Deprecated. True means ``op=Average``, False means ``op=Sum``.
        prescale_factor: Multiplies the input before the reduction.
        postscale_factor: Multiplies the result.
        op: Average (the default), Sum, Adasum (Gloo only), Min, Max or Product. An average of integers is rounded
            towards zero.
    """
    factors = prescale_factor, postscale_factor
    return all_like(tensors, _reduced(tensors, average, name, priority, *factors, process_set, op))


@same_arguments(grouped_allreduce)
def grouped_allreduce_(tensors: Sequence[Any], *args: Any, **options: Any) -> list[Any]:
    """`grouped_allreduce` in place. Return ``tensors``."""
    return list(map(write, tensors, _reduced(tensors, *args, **options)))


def _reduced(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: ReduceOp | None = None,
) -> list[Array]:
    how = ScaledOp(chosen_op(op, average), prescale_factor, postscale_factor)
    return core.grouped_allreduce_(
        all_to_numpy(tensors), name=name, process_set=process_set, **how.arguments()
    )


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Concatenate the ranks' arrays along the first dimension, which may differ between ranks, in one operation."""
    gathered = core.grouped_allgather(all_to_numpy(tensors), name=name, process_set=process_set)
    return all_like(tensors, gathered)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the root's ``tensor``. ``tensor`` is not changed.

    Args:
        tensor: Of the same shape and type on all ranks.
        root_rank: A global rank, also with a process set.
    """
    return like(tensor, core.broadcast_(to_numpy(tensor), root_rank, name=name, process_set=process_set))


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """`broadcast` in place. Return ``tensor``."""
    return write(tensor, core.broadcast_(to_numpy(tensor), root_rank, name=name, process_set=process_set))


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send the first ``splits[0]`` rows of ``tensor`` to rank 0, the next ``splits[1]`` to rank 1, ...

    Args:
        splits: One integer for each rank of the set; None divides the rows evenly.

    Returns:
        The rows received, in order of source rank; with ``splits``, a pair of these rows and the number of rows from
        each rank (int32).

    Raises:
        InvalidSplits: ``splits`` do not add up to the number of rows, or the rows cannot be divided evenly.
    """
    rows = to_numpy(splits) if isinstance(splits, mx.nd.NDArray) else splits
    array = to_numpy(tensor)
    try:
        result = core.alltoall(array, rows, name=name, process_set=process_set)
    except InvalidArgument as error:
        raise InvalidSplits(error.message, hint=error.hint) from None
    if splits is None:
        return like(tensor, result)
    received, counts = result
    return like(tensor, received), like(tensor, counts)


def grouped_reducescatter(
    tensors: Sequence[Any],
    op: ReduceOp = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Return this rank's rows of each of the reduced ``tensors``, in one operation. The first ranks get one more.

    Args:
        op: Average or Sum.
    """
    how = ScaledOp(op, prescale_factor, postscale_factor)
    shares = core.grouped_reducescatter(
        all_to_numpy(tensors), name=name, process_set=process_set, **how.arguments()
    )
    return all_like(tensors, shares)


allreduce = single(grouped_allreduce)
allreduce_ = single(grouped_allreduce_)
allgather = single(grouped_allgather)
reducescatter = single(grouped_reducescatter)


def to_numpy(tensor: Any) -> Array:
    """Copy ``tensor`` to host memory, once it is computed. Raises InvalidArgument unless it is a dense NDArray."""
    if not isinstance(tensor, mx.nd.NDArray):
        raise InvalidArgument(f"{type(tensor).__name__} is not an MXNet NDArray")
    if tensor.stype != "default":
        raise InvalidArgument(
            f"a sparse array ({tensor.stype}) cannot be sent",
            hint="Use its tostype('default'); for gradients, create the layer with sparse_grad=False.",
        )
    array: Array = tensor.asnumpy()
    return array


def all_to_numpy(tensors: Sequence[Any]) -> list[Array]:
    """Apply `to_numpy` to every array. Raises InvalidArgument also if ``tensors`` is not a list or tuple."""
    if not isinstance(tensors, (list, tuple)):
        raise InvalidArgument(f"a grouped operation takes a list of arrays, not a {type(tensors).__name__}")
    return [to_numpy(tensor) for tensor in tensors]


def like(tensor: Any, array: Array) -> Any:
    """Copy ``array`` to the device of ``tensor``, for the same MXNet interface (``nd`` or ``np``)."""
    with mx.util.np_shape(True):  # otherwise a dimension of 0 means that it is unknown
        made = mx.nd.array(array, tensor.context, array.dtype)
    return made.as_np_ndarray() if isinstance(tensor, mx.np.ndarray) else made


def all_like(tensors: Sequence[Any], arrays: Sequence[Array]) -> list[Any]:
    return [like(tensor, array) for tensor, array in zip(tensors, arrays)]


def write(tensor: Any, array: Array) -> Any:
    """Overwrite ``tensor`` with ``array``, and return ``tensor``."""
    tensor[()] = array  # also valid for a scalar
    return tensor


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """Return the root's ``obj``, pickled. The ``obj`` of other ranks is ignored."""
    return core.broadcast_object(obj, root_rank, name=name)


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """Return the ``obj`` of every rank, pickled, in order of rank."""
    return core.allgather_object(obj, name=name)


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: str | None = None) -> None:
    """Overwrite parameters with the root's. Parameters with deferred initialization follow once they have a shape.

    Args:
        params: ``net.collect_params()``, or a dictionary of arrays or parameters, such as each of the two of
            ``module.get_params()``. The same names on all ranks.
        prefix: Prepended to the names by which ranks are matched, and which errors show.

    Raises:
        InvalidArgument: ``params`` has another type.
    """
    if not isinstance(params, (Mapping, mx.gluon.ParameterDict)):
        raise InvalidArgument(f"invalid params of type: {type(params)}", hint="Pass a dictionary.")
    if core.size() == 1:
        return
    copies: dict[str, list[Any]] = {}
    for key, value in sorted(params.items()):
        name = f"{prefix or ''}{key}"
        if not isinstance(value, mx.gluon.Parameter):
            copies[name] = [value]
        elif value._deferred_init:
            _broadcast_deferred(value, root_rank, name)
        else:
            copies[name] = value.list_data()
    _broadcast(copies, root_rank)


def _broadcast(copies: Mapping[str, list[Any]], root_rank: int) -> None:
    """Overwrite arrays with the root's. The arrays of a name are copies of each other on several devices."""
    handles = {
        name: core.broadcast_async_(to_numpy(tensors[0]), root_rank, name=name)
        for name, tensors in copies.items()
    }
    for name, handle in handles.items():
        for tensor in copies[name]:
            write(tensor, handle.wait())


def _broadcast_deferred(parameter: Any, root_rank: int, name: str) -> None:
    """Broadcast once the shape is known: Gluon calls ``_init_impl`` then."""

    def make(data: Any, contexts: Any) -> None:
        del parameter._init_impl  # restores Gluon's own method
        parameter._init_impl(data, contexts)
        _broadcast({name: parameter.list_data()}, root_rank)

    parameter._init_impl = make
