"""Waiting: for an operation, and for the other ranks."""

from __future__ import annotations

from typing import Any

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.numpy._handle import Handle
from cloudtrain.distributed.numpy._session import among, current, global_process_set
from cloudtrain.distributed.process_set import ProcessSet


def synchronize(handle: Handle) -> Any:
    """Wait for an asynchronous collective; its result."""
    if not isinstance(handle, Handle):
        raise InvalidArgument(f"synchronize takes the handle of an asynchronous collective, not {handle!r}")
    return handle.wait()


def poll(handle: Handle) -> bool:
    """Whether `synchronize` would return at once."""
    return handle.done()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until every rank of the set is here."""
    among(process_set).barrier(process_set)


def join() -> int:
    """Tell the other ranks that this one has no more data, and wait until all have done so.

    Until then it counts as giving zeros to their allreduces. Other operations of all ranks fail meanwhile.

    Returns:
        The rank that joined last.
    """
    return current().join()
