"""Sums over ranks inside a model's layers, without negotiation once the ranks have agreed on their order."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from cloudtrain.distributed.negotiation import messages
from cloudtrain.distributed.reduce_op import ScaledOp, Sum
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._agreed_order import AgreedOrder
from cloudtrain.distributed.torch._failures import watch_stalls
from cloudtrain.distributed.torch._handle import Handle
from cloudtrain.distributed.torch._operation import in_same_order, type_name
from cloudtrain.distributed.torch._reductions import reduce_now_, reduce_tensors
from cloudtrain.distributed.torch._state import Context, global_process_set
from cloudtrain.observe.heartbeat import enter_collective, leave_collective


def number_of(layer: Any) -> int:
    """The number of ``layer``, which is the same on all ranks that use their layers in the same order."""
    return _order(_state.current()).number(layer)


def sum_(tensor: Tensor, name: str, number: int) -> None:
    """Sum ``tensor`` over all ranks, in place.

    A separate process group does it: in the backward pass, the ranks may launch these sums and the buckets of
    gradients in different orders.

    Args:
        name: of the layers' exchange.
        number: of the layer.

    Raises:
        CollectiveError: a rank died, or requested something else.
    """
    context = _state.current()
    order = _order(context)
    exchange = (name, number, tensor.numel(), type_name(tensor), tensor.device.type)
    try:
        if in_same_order():
            reduce_tensors([tensor], ScaledOp(Sum), name, global_process_set, in_place=True).wait()
            return
        if order.expects(exchange):
            _sum_without_asking(context, tensor, f"{name} of layer {number}")
        else:
            _negotiate(context, tensor, name, number)
    except BaseException:
        order.restart(context.client.layer_numbers.joins)
        raise
    order.passed(exchange)


def _sum_without_asking(context: Context, tensor: Tensor, name: str) -> None:
    watch_stalls(context)
    enter_collective()
    try:
        reduce_now_(tensor, Sum, name, context.layers.group)
    finally:
        leave_collective()


def _negotiate(context: Context, tensor: Tensor, name: str, number: int) -> None:
    if context.layers.group is None:
        request = messages.open_layer_group()
        pending = context.client.submit(request, lambda _: context.open_layer_group())
        Handle(request.label, pending, lambda: None).wait()
    reduce_tensors(
        [tensor], ScaledOp(Sum), name, global_process_set, in_place=True, must_match={"layer": number}
    ).wait()


def _order(context: Context) -> AgreedOrder:
    order, joins = context.layers, context.client.layer_numbers.joins
    if order.joins != joins:
        order.restart(joins)
    return order
