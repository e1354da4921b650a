"""Allreduce and reducescatter of one or several tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cloudtrain.distributed.errors import CollectiveError, InvalidArgument
from cloudtrain.distributed.negotiation.messages import EAGER_BYTES, CollectiveResponse, described
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Adasum, Average, ReduceOp, ScaledOp
from cloudtrain.distributed.sharding import share
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._adasum import adasum_
from cloudtrain.distributed.torch._failures import collective_errors
from cloudtrain.distributed.torch._launches import CombinedWork, Handle, launch, launch_now, track
from cloudtrain.distributed.torch._operation import (
    all_reduce,
    alone,
    from_payload,
    group_of,
    in_same_order,
    reduce_scatter_into,
    submit,
    to_payload,
    type_name,
    uses_nccl,
)
from cloudtrain.distributed.torch._ops import on_wire, scale_, to_wire
from cloudtrain.observe.timeline import recorder


def reduce_tensors(
    tensors: Sequence[Tensor],
    how: ScaledOp,
    name: str | None,
    process_set: ProcessSet,
    *,
    in_place: bool,
    must_match: Mapping[str, Any] | None = None,
) -> Handle:
    """Start to reduce ``tensors`` over the ranks of the set as one operation; the result is their list.

    Args:
        must_match: what else must be the same on all ranks.
    """
    is_alone = alone(process_set)
    op, prescale, postscale = how = ScaledOp(how.op, float(how.prescale), float(how.postscale))
    _check(tensors, op)
    divisor = process_set.size() if op == Average else 1
    wires = _wires(tensors, prescale, keep=not in_place)
    flats = _Flats(wires)

    def finish() -> list[Tensor]:
        flats.split()
        for wire in wires:
            scale_(wire, postscale, divisor)
        if not in_place:
            return [wire.to(tensor.dtype) for tensor, wire in zip(tensors, wires)]
        for tensor, wire in zip(tensors, wires):
            if wire.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(wire)
        return list(tensors)

    if op == Adasum and (in_same_order() or not all(wire.is_floating_point() for wire in wires)):
        raise InvalidArgument("Adasum needs floating-point tensors, and is not available in same_order()")
    if is_alone:
        return Handle("allreduce", None, finish)
    context, members = _state.current(), process_set.members()

    if in_same_order():
        group, wire_op = group_of(process_set), on_wire(op)
        return launch(
            f"allreduce of {name or 'tensors'}",
            group,
            lambda part: all_reduce(part[0], wire_op, group),
            [[flat] for flat in flats.join()],
            finish,
            op=wire_op,
            name=name,
        )

    def transfer(group: Any, _: CollectiveResponse) -> Any:
        if op == Adasum:
            for wire in wires:
                if wire.is_cuda:  # allocated on another stream
                    wire.record_stream(torch.cuda.current_stream(wire.device))
            return context.run_in_thread(lambda: adasum_(wires, group, members))
        return CombinedWork([all_reduce(flat, on_wire(op), group) for flat in flats.join()])

    def arrived(response: CollectiveResponse) -> None:
        [flat] = flats.join()
        with torch.inference_mode():  # the mode is per thread, and the tensors may be inference tensors
            flat.copy_(from_payload(response.payload, flat.dtype))

    # The payload is read before this function returns, because the caller may change the tensor after that, unless the
    # operation is in place.
    small = op != Adasum and flats.eager()
    return submit(
        "allreduce",
        name,
        process_set,
        {**_equal(tensors, how), **(must_match or {})},
        transfer,
        finish,
        payload=to_payload(flats.join()[0]) if small else None,
        arrived=arrived,
        device=wires[0].device if wires else None,
    )


def reduce_now_(tensor: Tensor, op: ReduceOp, name: str | None, group: Any) -> Tensor:
    """The fast path of `reduce_tensors` for one `plain` tensor, in place and without negotiation."""
    wire_op, label = on_wire(op), f"allreduce of {name or 'a tensor'}"
    is_async = tensor.is_cuda or _state.current().waits_lazily  # only a work can report when it is done
    if is_async or recorder.active is not None:
        launch_now(
            label,
            group,
            lambda part: all_reduce(part[0], wire_op, group, async_op=is_async),
            (tensor,),
            op=wire_op,
            name=name,
        )
    else:
        tracked = track(label, group, wire_op, (tensor,))
        with collective_errors(label):
            tracked.carried_by(all_reduce(tensor, wire_op, group, async_op=False))
    if op == Average:
        scale_(tensor, 1.0, group.size())
    return tensor


def plain(tensor: Tensor, op: ReduceOp) -> bool:
    """Whether a tensor can be sent without conversion."""
    return (
        tensor.layout == torch.strided
        and tensor.is_contiguous()
        and tensor.dtype.is_floating_point
        and not tensor.requires_grad
        and op != Adasum
    )


def scatter_tensors(
    tensors: Sequence[Tensor], how: ScaledOp, name: str | None, process_set: ProcessSet
) -> Handle:
    """Start to reduce ``tensors`` and give every rank its share of rows; the result is the list of shares."""
    op, prescale, postscale = how = ScaledOp(how.op, float(how.prescale), float(how.postscale))
    if op not in (Average, ReduceOp.Sum):
        raise CollectiveError(f"reducescatter takes Average or Sum, not {op.name}")
    if any(tensor.dim() == 0 for tensor in tensors):
        raise InvalidArgument("reducescatter needs tensors with a first dimension to divide")
    _check(tensors, op)
    rank, size = process_set.rank(), process_set.size()
    wires = _wires(tensors, prescale, keep=True)
    flats = _Flats(wires)
    received: list[Tensor] = []
    """The shares, if the backend has scattered them."""

    def finish() -> list[Tensor]:
        flats.split()
        shares = []
        for number, (tensor, wire) in enumerate(zip(tensors, wires)):
            if received:
                own = received[number]
                own.record_stream(torch.cuda.current_stream(own.device))  # allocated on another stream
            else:
                start, rows = share(wire.shape[0], rank, size)
                own = wire.narrow(0, start, rows).clone()
            scale_(own, postscale, size if op == Average else 1)
            shares.append(own.to(tensor.dtype))
        return shares

    if alone(process_set):
        return Handle("reducescatter", None, finish)

    def transfer(group: Any, _: CollectiveResponse) -> Any:
        even = all(wire.numel() and wire.shape[0] % size == 0 for wire in wires)
        if even and uses_nccl(group, wires[0].device):
            received.extend(wire.new_empty((wire.shape[0] // size, *wire.shape[1:])) for wire in wires)
            works = [
                reduce_scatter_into(own.view(-1), wire.view(-1), group) for own, wire in zip(received, wires)
            ]
            return CombinedWork(works)
        # No backend has a reduce-scatter with uneven shares, and it is not worth implementing one.
        return CombinedWork([all_reduce(flat, ReduceOp.Sum, group) for flat in flats.join()])

    must_match = _equal(tensors, how)
    return submit("reducescatter", name, process_set, must_match, transfer, finish, device=wires[0].device)


def _check(tensors: Sequence[Any], op: ReduceOp) -> None:
    """Raises InvalidArgument for tensors that cannot be reduced."""
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise InvalidArgument(f"a {type(tensor).__name__} is not a tensor", hint="Use torch.as_tensor.")
        if tensor.layout != torch.strided:
            raise InvalidArgument(
                f"a tensor of layout {tensor.layout} cannot be reduced",
                hint="Use sparse_allreduce_async, or to_dense().",
            )
        if tensor.dtype == torch.bool and op == Average:
            raise InvalidArgument("booleans have no average", hint="Use op=Sum, Max (any) or Min (all).")
        if tensor.is_complex() and op not in (Average, ReduceOp.Sum):
            raise InvalidArgument(f"complex numbers cannot be reduced by {op.name}", hint="Average or Sum.")


def _wires(tensors: Sequence[Tensor], prescale: float, *, keep: bool) -> list[Tensor]:
    wires = [to_wire(tensor, keep=keep) for tensor in tensors]
    if len({wire.device for wire in wires}) > 1:
        raise InvalidArgument("the tensors of one operation must be on one device")
    for wire in wires:
        scale_(wire, prescale)
    return wires


def _equal(tensors: Sequence[Tensor], how: ScaledOp) -> dict[str, Any]:
    shapes, types = [list(tensor.shape) for tensor in tensors], [type_name(tensor) for tensor in tensors]
    return described(shapes, types, how, device=tensors[0].device.type if tensors else "cpu")


class _Flats:
    """Tensors as one flat buffer per type; a single tensor of a type is its own buffer."""

    def __init__(self, wires: list[Tensor]) -> None:
        self._wires = wires
        self._flats: dict[torch.dtype, Tensor] = {}

    def eager(self) -> bool:
        wires = self._wires
        total = sum(wire.numel() * wire.element_size() for wire in wires)
        one_type = len({wire.dtype for wire in wires}) == 1
        return one_type and wires[0].device.type == "cpu" and total <= EAGER_BYTES

    def join(self) -> list[Tensor]:
        """The buffers, without empty ones."""
        if not self._flats:
            by_type: dict[torch.dtype, list[Tensor]] = {}
            for wire in self._wires:
                by_type.setdefault(wire.dtype, []).append(wire)
            for dtype, wires in by_type.items():
                one = len(wires) == 1
                self._flats[dtype] = (
                    wires[0].view(-1) if one else torch.cat([wire.view(-1) for wire in wires])
                )
        return list(self._flats.values())

    def split(self) -> None:
        """Copy the buffers back to the tensors."""
        offsets = dict.fromkeys(self._flats, 0)
        if len(self._flats) == len(self._wires):
            return
        for wire in self._wires:
            flat, offset = self._flats.get(wire.dtype), offsets.get(wire.dtype, 0)
            if flat is not None:
                if flat.is_cuda:  # allocated on another stream
                    flat.record_stream(torch.cuda.current_stream(flat.device))
                wire.view(-1).copy_(flat[offset : offset + wire.numel()])
                offsets[wire.dtype] = offset + wire.numel()
