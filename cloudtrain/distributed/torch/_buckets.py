"""Gradients in flat buffers, reduced while the backward pass still runs.

As in DistributedDataParallel (Li et al. 2020, https://arxiv.org/abs/2006.15704, section 3.2): parameters are
put into buckets in the reverse of their order, which is about the order in which their gradients come; a
bucket is reduced as soon as it is full, and always after the buckets before it, so that all ranks run the
same collectives in the same order without talking about it. The first bucket is small, to start early.

A gradient lives in its bucket: ``parameter.grad`` is a view of it, and there is no second copy. While it travels
nobody may change it, as in Horovod: ``synchronize`` comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cloudtrain.distributed._compression import Compressor
from cloudtrain.distributed.reduce_op import Sum
from cloudtrain.distributed.torch._handle import Handle, follow, reported
from cloudtrain.distributed.torch._join import launching
from cloudtrain.distributed.torch._operation import all_reduce
from cloudtrain.distributed.torch._ops import scale_
from cloudtrain.observe.timeline import recorder
from cloudtrain.observe.timeline.operation import Operation

FIRST_BYTES = 1 << 20
"""The most for the first bucket."""


@dataclass(eq=False)
class Slot:
    """One parameter, and the way of its gradient."""

    parameter: Tensor
    name: str
    passes_left: int
    """Backward passes before the gradient may leave."""
    taken: bool = False
    """Whether it may leave."""
    gradient: Tensor | None = None
    """What may leave, until it is in its bucket."""
    kept: bool = False
    """Whether the parameter has a gradient afterwards."""
    sparse_dim: int = 0
    """Sparse dimensions of the last gradient; 0 if it was dense."""
    bucket: Bucket | None = field(default=None, repr=False)
    view: Tensor | None = None
    """The gradient's place in the bucket, once that has a buffer."""
    handle: Handle | None = None
    """The reduction of a gradient that has no bucket, because it is sparse."""

    def take(self) -> None:
        """The gradient may leave. A parameter that was frozen since the last step has none, and gets none."""
        gradient = self.parameter.grad
        self.taken, self.gradient = True, gradient
        self.kept = gradient is not None or self.parameter.requires_grad
        if gradient is not None:
            self.sparse_dim = gradient.sparse_dim() if gradient.is_sparse else 0

    def give_back(self, gradient: Tensor) -> None:
        """Let the parameter have the reduced gradient."""
        if self.kept:
            self.parameter.grad = gradient

    def reset(self, passes: int) -> None:
        """Make ready for the next gradient."""
        self.passes_left, self.taken, self.gradient, self.handle = passes, False, None, None


class Bucket:
    """A flat buffer for the gradients of ``slots``, which are of one type on one device."""

    def __init__(self, slots: list[Slot]) -> None:
        self.slots = slots
        self.missing = len(slots)
        self.handle: Handle | None = None
        self._flat = torch.empty(0)
        self._copies: list[tuple[int, int]] = []
        """When gradients were moved here, for the timeline."""
        for slot in slots:
            slot.bucket = self

    def fill(self, slot: Slot, factor: float) -> None:
        """Move ``factor`` times the gradient that was taken to its place; zeros where there is none."""
        if slot.view is None:
            self._allocate()
        began = None if recorder.active is None else recorder.now()
        _move(slot.gradient, slot.view, factor)
        if began is not None:
            self._copies.append((began, recorder.now()))
        if slot.kept and not slot.sparse_dim:
            slot.parameter.grad = slot.view
        slot.gradient = None
        self.missing -= 1

    @property
    def label(self) -> str:
        return f"allreduce of gradients {self.slots[0].name} ... {self.slots[-1].name}"

    def launch(self, group: Any, compression: type[Compressor], postscale: float, step: int) -> None:
        """Start to sum the buffer over the ranks of ``group``, then to multiply it by ``postscale``."""
        flat = self._flat
        operation = self._recorded(step)
        wire, context = compression.compress(flat)
        complete = launching(f"{self.label} (step {step})", group, Sum, [wire])
        with reported(self.label):
            work: Any = all_reduce(wire, Sum, group)
        if operation is not None:
            follow(operation, work, group, wire.device)

        def finish() -> Tensor:
            complete()
            reduced = compression.decompress(wire, context)
            if reduced is not flat:
                flat.copy_(reduced)
            scale_(flat, postscale)
            return flat

        self.handle = Handle(self.label, work, finish, operation)

    def _recorded(self, step: int) -> Operation | None:
        timeline = recorder.active
        if timeline is None:
            return None
        facts = {"step": step, "bytes": self._flat.nbytes, "tensors": len(self.slots)}
        operation = timeline.operation(
            "allreduce", f"gradients {self.slots[0].name} ... {self.slots[-1].name}", facts
        )
        operation.copies, self._copies = self._copies, []
        return operation

    def finish(self) -> None:
        """Wait for the sum, and let the parameters have their gradients; sparse ones are sparse again."""
        assert self.handle is not None
        self.handle.wait()
        for slot in self.slots:
            assert slot.view is not None
            slot.give_back(slot.view.to_sparse(slot.sparse_dim) if slot.sparse_dim else slot.view)

    def reset(self) -> None:
        """Make ready for the next gradients."""
        self.missing, self.handle = len(self.slots), None

    def abandon(self) -> None:
        """Leave the buffer to whatever may still write to it; the next gradients get another."""
        for slot in self.slots:
            slot.view = None

    def _allocate(self) -> None:
        some = self.slots[0].parameter
        total = sum(slot.parameter.numel() for slot in self.slots)
        self._flat = torch.zeros(total, dtype=some.dtype, device=some.device)
        offset = 0
        for slot in self.slots:
            # The strides that autograd would choose: the parameter's own, where it is dense.
            strides = torch.empty_like(slot.parameter, device="meta").stride()
            slot.view = self._flat.as_strided(slot.parameter.shape, strides, offset)
            offset += slot.parameter.numel()


def accumulate(slot: Slot) -> None:
    """More passes are to come: meanwhile the gradient lives in the bucket."""
    gradient = slot.parameter.grad
    if slot.view is not None and gradient is not None and not gradient.is_sparse:
        _move(gradient, slot.view, 1.0)
        slot.parameter.grad = slot.view


def share_out(
    slots: Iterable[Slot], groups: Mapping[Tensor, int], *, first_bytes: int, bucket_bytes: int
) -> list[list[Slot]]:
    """Which slots, given in the order in which their gradients are expected, are to make a bucket together.

    A bucket is full with ``bucket_bytes`` or more, the first one with ``first_bytes``; with 0 every slot is a bucket
    of its own. Parameters of one of the ``groups`` share one, whatever their size. In the order in which the buckets
    will be full. All ranks that give parameters of the same shapes in the same order get the same buckets.
    """
    shares: list[list[Slot]] = []
    place: dict[Slot, int] = {}
    open_shares: dict[Any, tuple[list[Slot], float]] = {}
    for slot in slots:
        place[slot] = len(place)
        group = groups.get(slot.parameter)
        key = (slot.parameter.dtype, slot.parameter.device, group)
        if key not in open_shares:
            limit = bucket_bytes if shares else first_bytes
            open_shares[key] = [], float("inf") if group is not None else limit
            shares.append(open_shares[key][0])
        members, room = open_shares[key]
        members.append(slot)
        room -= slot.parameter.numel() * slot.parameter.element_size()
        if room > 0:
            open_shares[key] = members, room
        else:
            del open_shares[key]
    return sorted(shares, key=lambda members: place[members[-1]])


def _move(gradient: Tensor | None, view: Tensor | None, factor: float) -> None:
    assert view is not None
    if gradient is None:
        view.zero_()
    elif gradient.is_sparse:
        view.zero_().add_(gradient.detach(), alpha=factor)
    elif gradient is not view:
        torch.mul(gradient.detach(), factor, out=view)
    elif factor != 1.0:
        view.mul_(factor)
