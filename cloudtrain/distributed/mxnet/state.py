"""The same start on every rank: parameters and any object, from one rank to all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mxnet as mx

import cloudtrain.distributed.numpy as core
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.mxnet._arrays import to_numpy, write


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """The root's ``obj``, pickled; what other ranks give as ``obj`` does not matter."""
    return core.broadcast_object(obj, root_rank, name=name)


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """The ``obj`` of every rank, pickled, by rank."""
    return core.allgather_object(obj, name=name)


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: str | None = None) -> None:
    """Overwrite parameters with the root's; those without a shape as yet, when the first batch has given it.

    Args:
        params: ``net.collect_params()``, or a dictionary of arrays or parameters, such as each of the two of
            ``module.get_params()``; the same names on all ranks.
        prefix: put before the names that ranks are matched by, and that errors tell.

    Raises:
        InvalidArgument: ``params`` is something else.
    """
    if not isinstance(params, (Mapping, mx.gluon.ParameterDict)):
        raise InvalidArgument(f"invalid params of type: {type(params)}", hint="Give a dictionary.")
    if core.size() == 1:
        return
    copies: dict[str, list[Any]] = {}
    for key, value in sorted(params.items()):
        name = f"{prefix or ''}{key}"
        if not isinstance(value, mx.gluon.Parameter):
            copies[name] = [value]
        elif value._deferred_init:
            _broadcast_when_made(value, root_rank, name)
        else:
            copies[name] = value.list_data()
    _broadcast(copies, root_rank)


def _broadcast(copies: Mapping[str, list[Any]], root_rank: int) -> None:
    """Overwrite arrays by the root's; those of one name are copies of each other on several devices."""
    handles = {
        name: core.broadcast_async_(to_numpy(tensors[0]), root_rank, name=name)
        for name, tensors in copies.items()
    }
    for name, handle in handles.items():
        for tensor in copies[name]:
            write(tensor, handle.wait())


def _broadcast_when_made(parameter: Any, root_rank: int, name: str) -> None:
    """Gluon calls ``_init_impl`` once it knows the shape."""

    def make(data: Any, contexts: Any) -> None:
        del parameter._init_impl  # from here on it is Gluon's own again
        parameter._init_impl(data, contexts)
        _broadcast({name: parameter.list_data()}, root_rank)

    parameter._init_impl = make
