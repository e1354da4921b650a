"""allgather, broadcast and alltoall of arrays. What `reductions` says of arrays, names and errors holds here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.numpy._arrays import (
    Array,
    back_into,
    from_wire,
    plain,
    plain_list,
    to_wire,
    writable,
)
from cloudtrain.distributed.numpy._handle import Handle, only
from cloudtrain.distributed.numpy._session import among, global_process_set
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.sharding import check_splits, even_splits


def allgather_async(
    array: Any, *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Start to join all ranks' arrays along the first dimension, in order of rank.

    The first dimension may differ between ranks, the others may not; an array without dimensions counts as
    one of one row. ``array`` may not be changed before `synchronize`.
    """
    return only(_gather([plain(array)], name, process_set))


def allgather(array: Any, *, name: str | None = None, process_set: ProcessSet = global_process_set) -> Array:
    """All ranks' arrays, joined along the first dimension. Arguments as of `allgather_async`."""
    result: Array = allgather_async(array, name=name, process_set=process_set).wait()
    return result


def grouped_allgather_async(
    arrays: Sequence[Any], *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """`allgather_async` of several arrays as one operation; the result is their list."""
    return _gather(plain_list(arrays), name, process_set)


def grouped_allgather(
    arrays: Sequence[Any], *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Array]:
    """`allgather` of several arrays as one operation."""
    result: list[Array] = _gather(plain_list(arrays), name, process_set).wait()
    return result


def broadcast_async(
    array: Any, root_rank: int, *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Start to send the root's ``array`` to all ranks; the others' are of its shape, and not changed.

    Args:
        root_rank: a global rank, also where a process set is given.
    """
    return _broadcast(plain(array).copy(), root_rank, name, process_set)


def broadcast(
    array: Any, root_rank: int, *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Array:
    """The root's ``array``. Arguments as of `broadcast_async`."""
    result: Array = broadcast_async(array, root_rank, name=name, process_set=process_set).wait()
    return result


def broadcast_async_(
    array: Array, root_rank: int, *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """`broadcast_async` in place; ``array`` may not be touched before `synchronize`."""
    return _broadcast(writable(array), root_rank, name, process_set)


def broadcast_(
    array: Array, root_rank: int, *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Array:
    """Overwrite ``array`` with the root's. Arguments as of `broadcast_async`."""
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
        array: of the same type on all ranks, and of the same shape but for the first dimension. May not be
            changed before `synchronize`.
        splits: integers, one for each rank of the set; None divides the rows evenly.

    Returns:
        A handle whose result is what came from all ranks, in their order; where ``splits`` were given, a
        pair of that and the number of rows that came from each rank, as int32.
    """
    given = plain(array)
    collectives = among(process_set)
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
    """Exchange rows with all ranks; result and arguments as of `alltoall_async`."""
    return alltoall_async(array, splits, name=name, process_set=process_set).wait()


def _gather(arrays: list[Array], name: str | None, process_set: ProcessSet) -> Handle:
    wires = [to_wire(array).reshape(array.shape or (1,)) for array in arrays]
    handle = among(process_set).allgather(wires, name, process_set)
    return handle.then(lambda results: list(map(from_wire, results, arrays)))


def _broadcast(array: Array, root_rank: int, name: str | None, process_set: ProcessSet) -> Handle:
    collectives = among(process_set)
    if root_rank not in process_set.members():
        raise InvalidArgument(f"root_rank {root_rank} is not one of the ranks {process_set.members()}")
    handle = collectives.broadcast(to_wire(array), root_rank, name, process_set)
    return handle.then(lambda wire: back_into(array, wire))


def _splits(array: Array, splits: Any, size: int) -> list[int]:
    """How many rows each rank is sent. Raises InvalidArgument."""
    if array.ndim == 0:
        raise InvalidArgument("alltoall needs an array with a first dimension, which it divides")
    rows = array.shape[0]
    if splits is None:
        return even_splits(rows, size)
    numbers = plain(splits)
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        raise InvalidArgument("alltoall: splits have to be integers, one for each rank")
    given: list[int] = numbers.tolist()
    check_splits(given, rows, size, "array")
    return given
