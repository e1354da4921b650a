"""Any object from one rank to all, or from each to all, pickled."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from cloudtrain.distributed.numpy._session import current, global_process_set
from cloudtrain.distributed.numpy.exchanges import allgather, broadcast_
from cloudtrain.distributed.process_set import ProcessSet


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's ``obj``; what other ranks give as ``obj`` does not matter."""
    is_root = current().world.rank == root_rank
    blob = np.frombuffer(bytearray(pickle.dumps(obj) if is_root else b""), np.uint8)
    size_name = None if name is None else f"{name} (size)"
    size = broadcast_(np.array(blob.size), root_rank, name=size_name, process_set=process_set)
    sent = blob if is_root else np.empty(size, np.uint8)
    received = broadcast_(sent, root_rank, name=name, process_set=process_set)
    return obj if is_root else pickle.loads(received.data)


def allgather_object(
    obj: Any, *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The ``obj`` of every rank, by rank."""
    blob = np.frombuffer(bytearray(pickle.dumps(obj)), np.uint8)
    stream = io.BytesIO(allgather(blob, name=name, process_set=process_set).data)
    return [pickle.load(stream) for _ in range(process_set.size())]
