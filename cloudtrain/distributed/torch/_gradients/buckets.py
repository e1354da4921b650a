"""Gradients in flat buffers, reduced while the backward pass still runs.

As in DistributedDataParallel (Li et al. 2020, https://arxiv.org/abs/2006.15704, section 3.2), parameters are assigned
to buckets in reverse order, which is roughly the order in which their gradients become ready. A bucket is reduced as
soon as it is full, but never before the buckets ahead of it, so all ranks launch the same collectives in the same order
without negotiation. The first bucket is small, to start early.

``parameter.grad`` is a view of its bucket, so there is no second copy of the gradients. Scripts can give the same
object other memory, as ``parameter.grad.data = ...`` and ``model.cpu()`` do. A view whose offset in its storage has
changed is therefore recreated. A gradient must not be changed during the last backward pass, in which it is reduced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cloudtrain.distributed._gradients import Compressor
from cloudtrain.distributed.errors import GradientOrderError
from cloudtrain.distributed.reduce_op import ReduceOp
from cloudtrain.distributed.torch._launches import Handle, launch
from cloudtrain.distributed.torch._operation import all_reduce, uses_nccl
from cloudtrain.distributed.torch._ops import scale_
from cloudtrain.observe.timeline import recorder

FIRST_BYTES = 1 << 20
"""The size limit of the first bucket."""
MARGIN_BYTES = 64
"""Unused memory before a buffer, so that no view of it has offset 0, as a separate tensor has."""
SMALL_BYTES = 1 << 14
"""Below this average size, one call per gradient costs a CPU more than reading the buffer a second time."""


@dataclass(eq=False)
class Slot:
    """One parameter and the state of its gradient."""

    parameter: Tensor
    name: str
    passes_left: int
    """Backward passes until the gradient is ready."""
    kept: bool = False
    """Whether the parameter gets a gradient after the reduction."""
    sparse_dim: int = 0
    """Sparse dimensions of the last gradient; 0 if it was dense."""
    bucket: Bucket | None = field(default=None, repr=False)
    view: Tensor | None = None
    """The gradient's view of its bucket, once the bucket has a buffer."""
    offset: int = 0
    """Where the view begins in the storage of the buffer, in elements; never 0."""
    handle: Handle | None = None
    """The reduction of a sparse gradient, which has no bucket."""

    def take(self) -> Tensor | None:
        """The ready gradient. A parameter frozen since the last step has no gradient and gets none."""
        gradient = self.parameter.grad
        if gradient is None:
            self.kept = self.parameter.requires_grad
        else:
            self.kept = True
            self.sparse_dim = gradient.sparse_dim() if gradient.is_sparse else 0
        return gradient

    def give_back(self, gradient: Tensor) -> None:
        """Assign the reduced gradient to the parameter.

        Raises:
            GradientOrderError: the parameter is frozen on this rank, but another rank has a gradient.
        """
        if self.kept:
            if self.parameter.grad is not gradient:
                self.parameter.grad = gradient
        elif gradient._nnz() if gradient.is_sparse else gradient.any():
            raise GradientOrderError(
                f"{self.name} is frozen on this rank (requires_grad=False), but has a gradient on another",
                hint="Freeze the same parameters on all ranks.",
            )


class Bucket:
    """A flat buffer for the gradients of ``slots``, which have one type and one device."""

    def __init__(self, slots: list[Slot]) -> None:
        self.slots = slots
        self.missing = len(slots)
        self.handle: Handle | None = None
        self._flat = torch.empty(0)
        self._copies: list[tuple[int, int]] = []
        """The times at which gradients were copied to the buffer, for the timeline."""
        self._streams = WritingStreams()
        self._on_gpu = slots[0].parameter.is_cuda
        for slot in slots:
            slot.bucket = self

    def arrived(self, slot: Slot) -> None:
        """The gradient of ``slot`` is ready, on the current stream."""
        self.missing -= 1
        if self._on_gpu:
            self._streams.add(slot.parameter)

    def fill(self, factor: float) -> None:
        """Copy the gradients, times ``factor``, to their places; zeros where there is none."""
        some = self.slots[0].parameter
        if (
            self.slots[0].view is None
            or self._flat.dtype != some.dtype
            or self._flat.device != some.device  # the model was converted, or moved
        ):
            self._allocate()
        began = None if recorder.active is None else recorder.now()
        gradients, views, others = [], [], []
        for slot in self.slots:
            gradient, view = slot.take(), slot.view
            if view is None or view.storage_offset() != slot.offset:
                view = self._make_view(slot)
            if gradient is view:
                continue
            if gradient is None or slot.sparse_dim:
                others.append((gradient, view))
            else:
                gradients.append(gradient)
                views.append(view)
            if slot.kept and not slot.sparse_dim:
                slot.parameter.grad = view
        if self._streams.join(self._flat):
            for gradient in gradients:  # their memory is reused on another stream than this one
                gradient.record_stream(torch.cuda.current_stream(gradient.device))
        with torch.no_grad():
            for gradient, view in others:
                view.zero_()
                if gradient is not None:
                    view.add_(gradient)
            self._copy(gradients, views, factor)
        if began is not None:
            self._copies.append((began, recorder.now()))

    def _copy(self, gradients: list[Tensor], views: list[Tensor], factor: float) -> None:
        """Copy ``gradients`` to ``views``, and multiply all of the buffer by ``factor``."""
        at_once = factor != 1.0 and len(views) == len(self.slots) and not self._flat.is_cuda
        if at_once and self._flat.nbytes > len(views) * SMALL_BYTES:
            # The memory of a CPU is slower than the calls, so read and write it only once.
            for gradient, view in zip(gradients, views):
                torch.mul(gradient, factor, out=view)
            return
        if views:
            torch._foreach_copy_(views, gradients)
        if factor != 1.0:
            self._flat.mul_(factor)

    @property
    def name(self) -> str:
        return f"gradients {self.slots[0].name} ... {self.slots[-1].name}"

    def averaged_by(self, group: Any) -> bool:
        """Whether the backend of ``group`` can average the buffer itself."""
        some = self.slots[0].parameter
        return some.is_floating_point() and uses_nccl(group, some.device)

    def launch(
        self, group: Any, op: ReduceOp, compression: type[Compressor], postscale: float, step: int
    ) -> None:
        """Start to reduce the buffer over the ranks of ``group``; the result is then multiplied by ``postscale``."""
        flat = self._flat
        wire, context = compression.compress(flat)

        def finish() -> Tensor:
            reduced = compression.decompress(wire, context)
            if reduced is not flat:
                flat.copy_(reduced)
            scale_(flat, postscale)
            return flat

        copies, self._copies = self._copies, []
        self.handle = launch(
            f"allreduce of {self.name}",
            group,
            lambda part: all_reduce(part[0], op, group),
            [[wire]],
            finish,
            op=op,
            position=f"allreduce of {self.name} (step {step})",
            name=self.name,
            facts={"step": step, "bytes": flat.nbytes, "tensors": len(self.slots)},
            copies=copies,
        )

    def finish(self) -> None:
        """Wait for the sum and assign the gradients; sparse gradients become sparse again."""
        assert self.handle is not None
        self.handle.wait()
        self.handle = None
        for slot in self.slots:
            view = slot.view
            if view is None or view.storage_offset() != slot.offset:
                view = self._make_view(slot)
            slot.give_back(view.to_sparse(slot.sparse_dim) if slot.sparse_dim else view)

    def reset(self) -> None:
        """Prepare for the next gradients."""
        self.missing, self.handle = len(self.slots), None

    def abandon(self) -> None:
        """Drop the buffer, to which a reduction in flight may still write; the next gradients get a new one."""
        for slot in self.slots:
            slot.view = None

    def _allocate(self) -> None:
        some = self.slots[0].parameter
        margin = MARGIN_BYTES // some.element_size()
        total = sum(slot.parameter.numel() for slot in self.slots)
        memory = torch.zeros(margin + total, dtype=some.dtype, device=some.device)
        self._flat = memory.narrow(0, margin, total)
        self._on_gpu = some.is_cuda
        offset = margin
        for slot in self.slots:
            slot.offset = offset
            self._make_view(slot)
            offset += slot.parameter.numel()

    def _make_view(self, slot: Slot) -> Tensor:
        # The strides that autograd would choose: those of the parameter if it is dense.
        strides = torch.empty_like(slot.parameter, device="meta").stride()
        slot.view = self._flat.as_strided(slot.parameter.shape, strides, slot.offset)
        return slot.view


class WritingStreams:
    """The streams that write the gradients of a bucket, until another stream reads them.

    Gradients of one bucket may come from several streams, because autograd computes each on the stream of its forward
    pass.
    """

    def __init__(self) -> None:
        self._streams: list[Any] = []

    def add(self, buffer: Tensor) -> None:
        """Record that the current stream has written a part of ``buffer``, or of a tensor on its device."""
        if buffer.is_cuda:
            stream = torch.cuda.current_stream(buffer.device)
            if stream not in self._streams:
                self._streams.append(stream)

    def join(self, buffer: Tensor) -> bool:
        """Make the current stream wait for the others, to read what they have written. Returns whether it had to."""
        if not self._streams:
            return False
        current = torch.cuda.current_stream(buffer.device)
        others = [stream for stream in self._streams if stream != current]
        for stream in others:
            current.wait_stream(stream)
        self._streams.clear()
        return bool(others)


def accumulate(slot: Slot) -> None:
    """Keep the gradient in its bucket between backward passes of one step."""
    gradient, view = slot.parameter.grad, slot.view
    if gradient is None or gradient.requires_grad:  # the script differentiates it: create_graph=True
        return
    if view is not None and gradient is not view and not gradient.is_sparse:
        with torch.no_grad():
            view.copy_(gradient)
        slot.parameter.grad = view


def share_out(
    slots: Iterable[Slot], groups: Mapping[Tensor, int], *, first_bytes: int, bucket_bytes: int
) -> list[list[Slot]]:
    """Divide slots, given in the order in which their gradients are expected, among buckets.

    A bucket is full at ``bucket_bytes``, the first one at ``first_bytes``; with 0 every slot gets its own bucket.
    Parameters of one of the ``groups`` share a bucket regardless of its size. The result is in the order in which the
    buckets become full. Ranks that pass parameters of the same shapes in the same order get the same buckets.
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
