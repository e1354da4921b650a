"""Parameters and objects from one rank to all, so that all ranks start with the same state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mxnet as mx

import cloudtrain.distributed.numpy as core
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.mxnet.collectives import to_numpy, write


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
