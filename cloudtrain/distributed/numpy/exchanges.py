"""allgather, broadcast and alltoall on arrays and objects, and the wait for a handle.

`reductions` describes arrays, names and errors; the same holds here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cloudtrain.distributed._objects import purpose_of
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.numpy._arrays import (
    Array,
    as_array,
    as_arrays,
    copy_back,
    from_wire,
    to_wire,
    writable,
)
from cloudtrain.distributed.numpy._backend import Handle, only
from cloudtrain.distributed.numpy._context import collectives_of, current, global_process_set
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.sharding import check_splits, even_splits


def synchronize(handle: Handle) -> Any:
    """Wait for an asynchronous collective, and return its result."""
    if not isinstance(handle, Handle):
        raise InvalidArgument(f"synchronize takes the handle of an asynchronous collective, not {handle!r}")
    return handle.wait()


def poll(handle: Handle) -> bool:
    """Whether `synchronize` would return immediately."""
    return handle.done()


def allgather_async(
    array: Any, *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Start to concatenate all ranks' arrays along the first dimension, in order of rank.

    Only the first dimension may differ between ranks. A scalar counts as one row. Do not change ``array``
    before `synchronize`.
    """
    return only(_gather([as_array(array)], name, process_set))


def allgather(array: Any, *, name: str | None = None, process_set: ProcessSet = global_process_set) -> Array:
    """Concatenate all ranks' arrays along the first dimension. See `allgather_async`."""
    result: Array = allgather_async(array, name=name, process_set=process_set).wait()
    return result


def grouped_allgather_async(
    arrays: Sequence[Any], *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """`allgather_async` of several arrays in one operation. The result is a list."""
    return _gather(as_arrays(arrays), name, process_set)


def grouped_allgather(
    arrays: Sequence[Any], *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Array]:
    """`allgather` of several arrays in one operation."""
    result: list[Array] = _gather(as_arrays(arrays), name, process_set).wait()
    return result


def broadcast_async(
    array: Any, root_rank: int, *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Start to send the root's ``array`` to all ranks. ``array`` has the same shape on all ranks and is not changed.

    Args:
        root_rank: A global rank, also with a process set.
    """
    return _broadcast(as_array(array).copy(), root_rank, name, process_set)


def broadcast(
    array: Any, root_rank: int, *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Array:
    """Return the root's ``array``. See `broadcast_async`."""
    result: Array = broadcast_async(array, root_rank, name=name, process_set=process_set).wait()
    return result


def broadcast_async_(
    array: Array, root_rank: int, *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """`broadcast_async` in place. Do not access ``array`` before `synchronize`."""
    return _broadcast(writable(array), root_rank, name, process_set)


def broadcast_(
    array: Array, root_rank: int, *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Array:
    """Overwrite ``array`` with the root's. See `broadcast_async`."""
    result: Array = _broadcast(writable(array), root_rank, name, process_set).wait()
    return result


def alltoall_async(
    array: Any,
    splits: Any = None,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to send the first ``splits[0]`` rows of ``array`` to rank 0, the next ``splits[1]`` to rank 1, ...

    Args:
        array: Of the same type on all ranks, and the same shape except for the first dimension. Do not change
            it before `synchronize`.
        splits: One integer for each rank of the set; None divides the rows evenly.

    Returns:
        A handle. Its result is the rows received, in order of source rank; with ``splits``, a pair of these
        rows and the number of rows from each rank (int32).
    """
    given = as_array(array)
    collectives = collectives_of(process_set)
    rows = _splits(given, splits, process_set.size())

    def finish(pair: tuple[Array, list[int]]) -> Any:
        received = from_wire(pair[0], given)
        return received if splits is None else (received, np.array(pair[1], np.int32))

    return collectives.alltoall(to_wire(given), rows, name, process_set).then(finish)


def alltoall(
    array: Any,
    splits: Any = None,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Exchange rows with all ranks. See `alltoall_async`."""
    return alltoall_async(array, splits, name=name, process_set=process_set).wait()


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the root's ``obj``, pickled. The ``obj`` of other ranks is ignored."""
    is_root = current().world.rank == root_rank
    objects = current().objects
    purpose = purpose_of("broadcast_object", name, root_rank)
    blob = np.frombuffer(objects.pack(obj, purpose) if is_root else bytearray(), np.uint8)
    size_name = None if name is None else f"{name} (size)"
    size = broadcast_(np.array(blob.size), root_rank, name=size_name, process_set=process_set)
    sent = blob if is_root else np.empty(size, np.uint8)
    received = broadcast_(sent, root_rank, name=name, process_set=process_set)
    return obj if is_root else objects.unpack(received.data, purpose)


def allgather_object(
    obj: Any, *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return the ``obj`` of every rank, pickled, in order of rank."""
    objects = current().objects
    purposes = [purpose_of("allgather_object", name, rank) for rank in process_set.members()]
    blob = np.frombuffer(objects.pack(obj, purposes[process_set.rank()]), np.uint8)
    return objects.unpack_all(allgather(blob, name=name, process_set=process_set).data, purposes)


def _gather(arrays: list[Array], name: str | None, process_set: ProcessSet) -> Handle:
    wires = [to_wire(array).reshape(array.shape or (1,)) for array in arrays]
    handle = collectives_of(process_set).allgather(wires, name, process_set)
    return handle.then(lambda results: list(map(from_wire, results, arrays)))


def _broadcast(array: Array, root_rank: int, name: str | None, process_set: ProcessSet) -> Handle:
    collectives = collectives_of(process_set)
    if root_rank not in process_set.members():
        raise InvalidArgument(f"root_rank {root_rank} is not one of the ranks {process_set.members()}")
    handle = collectives.broadcast(to_wire(array), root_rank, name, process_set)
    return handle.then(lambda wire: copy_back(array, wire))


def _splits(array: Array, splits: Any, size: int) -> list[int]:
    """Return the number of rows for each rank. Raises InvalidArgument."""
    if array.ndim == 0:
        raise InvalidArgument("alltoall needs an array with a first dimension to split")
    rows = array.shape[0]
    if splits is None:
        return even_splits(rows, size)
    numbers = as_array(splits)
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        raise InvalidArgument("alltoall: splits have to be integers, one for each rank")
    given: list[int] = numbers.tolist()
    check_splits(given, rows, size, "array")
    return given
