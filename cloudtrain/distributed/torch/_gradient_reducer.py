"""The gradients of one optimizer, summed over ranks during the backward pass."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cloudtrain.distributed._compression import Compressor
from cloudtrain.distributed.errors import GradientOrderError
from cloudtrain.distributed.options import AUTOTUNE, FUSION_THRESHOLD, fusion_threshold
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, Max, ReduceOp
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._autotune import tuning_of
from cloudtrain.distributed.torch._buckets import (
    FIRST_BYTES,
    Bucket,
    Slot,
    accumulate,
    share_out,
)
from cloudtrain.distributed.torch._operation import group_of
from cloudtrain.distributed.torch._parameters import check_equal_on_all_ranks, describe
from cloudtrain.distributed.torch.collectives import allreduce_, sparse_allreduce_async


@dataclass(frozen=True)
class Reduction:
    """How gradients become one."""

    op: ReduceOp
    """Average or Sum."""
    predivide: float
    """Splits the division of Average: by this before the sum, by the rest after it."""
    compression: type[Compressor]
    sparse_as_dense: bool
    process_set: ProcessSet

    def factors(self) -> tuple[float, float]:
        """To be multiplied before the sum, and after it."""
        if self.op != Average:
            return 1.0, 1.0
        if self.predivide == 1.0:
            # One factor costs nothing while gradients are copied to their bucket; a second one does.
            return 1.0 / self.process_set.size(), 1.0
        return 1.0 / self.predivide, self.predivide / self.process_set.size()


_alive: weakref.WeakSet[GradientReducer] = weakref.WeakSet()


class GradientReducer:
    """Hooks parameters, fills buckets, launches them in a fixed order, waits for them.

    Buckets are made at the end of the first step, when the ranks can tell each other whose gradients are sparse.
    Those travel one by one, negotiated by name.

    Args:
        names: of parameters, for errors; their order is taken as the order of the forward pass.
        groups: numbers of parameters that are to travel together.
        passes: backward passes that are summed up before a gradient travels.
    """

    def __init__(
        self, names: Mapping[Tensor, str], groups: Mapping[Tensor, int], passes: int, reduction: Reduction
    ) -> None:
        self._spoiled = ""
        """The parameter whose gradient was changed on its way."""
        self.pending = False
        """Whether a gradient came since the last `synchronize`."""
        self._names = dict(names)
        self._groups = groups
        self._passes = passes
        self._reduction = reduction
        self._slots: dict[Tensor, Slot] = {}
        _alive.add(self)
        """In the order in which gradients are expected."""
        self._launched = 0
        self._begin()

    def _begin(self) -> None:
        """Know of no places; later, the same again."""
        self._context = weakref.ref(_state.current())
        self._bucket_bytes = fusion_threshold()
        self._tuning = tuning_of(self._reduction.process_set)
        self._prescale, self._postscale = self._reduction.factors()
        self._step = 0
        self._buckets: list[Bucket] = []
        self._sparse: dict[Slot, int] = {}
        """Slots that get no bucket, and the sparse dimensions of their gradients."""
        self._unplaced = list(self._slots.values())
        for slot in self._unplaced:
            slot.bucket = slot.view = None

    def _begin_anew(self) -> None:
        """Where ranks have met again after a failure, they may have failed at different positions: agree again."""
        if self._context() is not _state.current():
            self._begin()
        elif self._tuning is not None:
            self._resize(self._tuning.begin())

    def track(self, parameters: Iterable[Tensor]) -> None:
        """Take in those ``parameters`` that are new, or were frozen before.

        Raises:
            InvalidArgument: they differ between ranks.
        """
        new = [p for p in parameters if p.requires_grad and p not in self._slots]
        if not new:
            return
        for parameter in new:
            self._names.setdefault(parameter, f"allreduce.noname.{len(self._names)}")
        place = {parameter: number for number, parameter in enumerate(self._names)}
        new.sort(key=place.__getitem__)
        check_equal_on_all_ranks(
            [describe(self._names[p], p, self._groups.get(p)) for p in new],
            self._reduction.process_set,
            f"{FUSION_THRESHOLD}={fusion_threshold()}, {AUTOTUNE}={self._tuning is not None:d}",
        )
        for parameter in reversed(new):
            slot = self._slots[parameter] = Slot(parameter, self._names[parameter], self._passes)
            self._unplaced.append(slot)
            # A parameter may outlive its optimizer, and must not keep it.
            hook = functools.partial(_arrived, weakref.ref(self), slot)
            register: Any = parameter.register_post_accumulate_grad_hook
            weakref.finalize(self, register(hook).remove)

    def arrived(self, slot: Slot) -> None:
        """A backward pass added to the gradient of ``slot``."""
        if slot.passes_left <= 0:
            self._spoiled = slot.name
            raise GradientOrderError(
                "Gradients were computed more than backward_passes_per_step times before call to step(). "
                "Increase backward_passes_per_step to accumulate gradients locally."
            )
        if not self.pending:
            self._begin_anew()
        self.pending = True
        slot.passes_left -= 1
        if slot.passes_left == 0:
            self._send_off(slot)
        else:
            accumulate(slot)

    def synchronize(self) -> None:
        """Send off what has not left yet, gradients that did not come being zero, and wait for all."""
        if not self.pending:
            self._begin_anew()
        for slot in self._slots.values():
            if not slot.taken:
                self._send_off(slot)
        self._place()
        self._launch_full()
        for bucket in self._buckets:
            bucket.finish()
        for slot in self._sparse:
            assert slot.handle is not None
            slot.give_back(slot.handle.wait())
        spoiled = self._spoiled
        self._reset()
        if self._tuning is not None:
            self._resize(self._tuning.step_ended())
        if spoiled:
            raise GradientOrderError(
                f"the gradients of this step are spoiled: a backward pass too many changed that of {spoiled} "
                "while it travelled",
                hint="Skip this step: zero_grad(), and go on with the next batch.",
            )

    def forget(self) -> None:
        """Drop the gradients that came since the last `synchronize`."""
        for bucket in self._buckets:
            if bucket.handle is not None:
                bucket.abandon()
        self._reset()

    def set_passes(self, passes: int) -> None:
        """Change how many backward passes are summed up; only while nothing is `pending`."""
        self._passes = passes
        self._reset()

    def _reset(self) -> None:
        self._launched = 0
        self._step += 1
        self.pending, self._spoiled = False, ""
        for bucket in self._buckets:
            bucket.reset()
        for slot in self._slots.values():
            slot.reset(self._passes)

    def _send_off(self, slot: Slot) -> None:
        slot.take()
        if slot in self._sparse:
            self._launch_sparse(slot)
        elif slot.bucket is not None:
            slot.bucket.fill(slot, self._prescale)
            if self._alone():
                self._launch_full()

    def _place(self) -> None:
        """Find places for the slots that have none, and send off their gradients."""
        if not self._unplaced:
            return
        self._agree_on_sparse()
        unplaced, self._unplaced = self._unplaced, []
        dense = [slot for slot in unplaced if slot not in self._sparse]
        buckets = self._made(dense)
        self._buckets += buckets
        for bucket in buckets:
            for slot in bucket.slots:
                bucket.fill(slot, self._prescale)
            self._launch_full()
        for slot in unplaced:
            if slot in self._sparse:
                self._launch_sparse(slot)

    def _made(self, slots: list[Slot]) -> list[Bucket]:
        most = self._bucket_bytes
        first = most if self._buckets else min(FIRST_BYTES, most)
        return [
            Bucket(share) for share in share_out(slots, self._groups, first_bytes=first, bucket_bytes=most)
        ]

    def _resize(self, bucket_bytes: int) -> None:
        """Put the gradients of the next steps into buckets of this size, on all ranks at the same step."""
        if bucket_bytes == self._bucket_bytes:
            return
        self._bucket_bytes = bucket_bytes
        placed = [slot for slot in self._slots.values() if slot.bucket is not None]
        for slot in placed:
            slot.view = None
        self._buckets = []
        self._buckets = self._made(placed)

    def _agree_on_sparse(self) -> None:
        """A gradient that is sparse on one rank is so on all; a rank without a gradient cannot know."""
        if self._reduction.sparse_as_dense:
            return
        dims = torch.tensor([slot.sparse_dim for slot in self._unplaced])
        name, process_set = "DistributedOptimizer.sparse_dim", self._reduction.process_set
        allreduce_(dims, name=name, op=Max, process_set=process_set)
        for slot, sparse_dim in zip(self._unplaced, dims.tolist()):
            if sparse_dim:
                self._sparse[slot] = sparse_dim

    def _alone(self) -> bool:
        """Whether no other optimizer sends gradients among the same ranks.

        Otherwise only the order of steps is sure to be the same on all ranks: which of two models gets its
        gradients first may depend on the data.
        """
        own = self._reduction.process_set
        return all(other is self or other._reduction.process_set != own for other in _alive)

    def _launch_full(self) -> None:
        """Send off the buckets that are full, in their order."""
        while self._launched < len(self._buckets) and self._buckets[self._launched].missing == 0:
            bucket = self._buckets[self._launched]
            group = group_of(self._reduction.process_set)
            bucket.launch(group, self._reduction.compression, self._postscale, self._step)
            self._launched += 1

    def _launch_sparse(self, slot: Slot) -> None:
        gradient, slot.gradient = slot.gradient, None
        shape, sparse_dim = slot.parameter.shape, self._sparse[slot]
        if gradient is None:
            indices = torch.empty(sparse_dim, 0, dtype=torch.int64, device=slot.parameter.device)
            values = slot.parameter.detach().new_empty(0, *shape[sparse_dim:])
            gradient = torch.sparse_coo_tensor(indices, values, shape, check_invariants=False)
        elif not gradient.is_sparse:
            gradient = gradient.to_sparse(sparse_dim)
        op, process_set = self._reduction.op, self._reduction.process_set
        slot.handle = sparse_allreduce_async(gradient, slot.name, op, process_set)


def _arrived(reducer: weakref.ref[GradientReducer], slot: Slot, _: Any) -> None:
    alive = reducer()
    if alive is not None:
        alive.arrived(slot)
