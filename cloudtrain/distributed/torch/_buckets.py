"""Gradients in flat buffers, reduced while the backward pass still runs.

As in DistributedDataParallel (Li et al. 2020, https://arxiv.org/abs/2006.15704, section 3.2): parameters are
put into buckets in the reverse of their order, which is about the order in which their gradients come; a
bucket is reduced as soon as it is full, and always after the buckets before it, so that all ranks run the
same collectives in the same order without talking about it. The first bucket is small, to start early.

A gradient lives in its bucket: ``parameter.grad`` is a view of it, and there is no second copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.torch._handle import Handle, reported
from cloudtrain.distributed.torch._reduction import scale_
from cloudtrain.distributed.torch.compression import Compressor

FIRST_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20


@dataclass(eq=False)
class Slot:
    """One parameter's place in its bucket."""

    parameter: Tensor
    name: str
    view: Tensor
    bucket: Bucket = field(repr=False)
    passes_left: int
    """Backward passes before the gradient may leave."""
    filled: bool = False
    """Whether the view holds the gradient that will leave."""


@dataclass(eq=False)
class Bucket:
    """A flat buffer, and the gradients that live in it."""

    flat: Tensor
    slots: list[Slot] = field(default_factory=list)
    missing: int = 0
    handle: Handle | None = None

    def put(self, slot: Slot, factor: float) -> None:
        """Move ``factor`` times the parameter's gradient to its place; zeros where it has none."""
        gradient, view = slot.parameter.grad, slot.view
        if gradient is None:
            view.zero_()
        elif gradient.is_sparse:
            raise InvalidArgument(
                f"the gradient of {slot.name} is sparse, which DistributedOptimizer does not reduce",
                hint="Make its layer with sparse=False.",
            )
        elif gradient is not view:
            torch.mul(gradient.detach(), factor, out=view)
        elif factor != 1.0:
            view.mul_(factor)
        # A parameter that was frozen since stays without a gradient.
        if gradient is not None or slot.parameter.requires_grad:
            slot.parameter.grad = view

    def fill(self, slot: Slot, factor: float) -> None:
        """`put`, and the gradient may leave."""
        self.put(slot, factor)
        slot.filled = True
        self.missing -= 1

    def launch(self, compression: type[Compressor], postscale: float) -> None:
        """Start to sum the buffer over all ranks, then to multiply it by ``postscale``."""
        what = f"allreduce of gradients {self.slots[0].name} ... {self.slots[-1].name}"
        wire, context = compression.compress(self.flat)
        with reported(what):
            work: Any = dist.all_reduce(wire, async_op=True)

        def finish() -> Tensor:
            reduced = compression.decompress(wire, context)
            if reduced is not self.flat:
                self.flat.copy_(reduced)
            scale_(self.flat, postscale)
            return self.flat

        self.handle = Handle(what, work, finish)

    def reset(self, passes: int) -> None:
        self.handle = None
        self.missing = len(self.slots)
        for slot in self.slots:
            slot.passes_left, slot.filled = passes, False


def make_buckets(named: Iterable[tuple[str, Tensor]], passes: int, *, first_bytes: int) -> list[Bucket]:
    """Buckets for parameters given in the order in which their gradients are expected.

    A bucket holds one type on one device. All ranks that give parameters of the same shapes in the same
    order get the same buckets.
    """
    groups: list[list[tuple[str, Tensor]]] = []
    open_groups: dict[Any, tuple[list[tuple[str, Tensor]], int]] = {}
    for name, parameter in named:
        key = (parameter.dtype, parameter.device)
        if key not in open_groups:
            members: list[tuple[str, Tensor]] = []
            groups.append(members)
            open_groups[key] = members, first_bytes if len(groups) == 1 else BUCKET_BYTES
        members, room = open_groups[key]
        members.append((name, parameter))
        room -= parameter.numel() * parameter.element_size()
        if room > 0:
            open_groups[key] = members, room
        else:
            del open_groups[key]
    return [_make_bucket(group, passes) for group in groups]


def _make_bucket(group: list[tuple[str, Tensor]], passes: int) -> Bucket:
    some = group[0][1]
    total = sum(parameter.numel() for _, parameter in group)
    bucket = Bucket(torch.zeros(total, dtype=some.dtype, device=some.device))
    offset = 0
    for name, parameter in group:
        # The strides that autograd would choose: the parameter's own, where it is dense.
        strides = torch.empty_like(parameter, device="meta").stride()
        view = bucket.flat.as_strided(parameter.shape, strides, offset)
        bucket.slots.append(Slot(parameter, name, view, bucket, passes))
        offset += parameter.numel()
    bucket.reset(passes)
    return bucket
