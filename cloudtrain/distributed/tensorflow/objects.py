"""Any object from one rank to all, or from each to all, pickled."""

from __future__ import annotations

from typing import Any, Callable

import cloudtrain.distributed.numpy as hvd
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.tensorflow._session import global_process_set


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's ``obj``; what other ranks give as ``obj`` does not matter.

    Args:
        session: has no meaning here: objects do not travel through a graph.
    """
    return hvd.broadcast_object(obj, root_rank, name=name, process_set=process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """`broadcast_object` with its arguments given before the object."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The ``obj`` of every rank, by rank. Arguments as of `broadcast_object`."""
    return hvd.allgather_object(obj, name=name, process_set=process_set)
