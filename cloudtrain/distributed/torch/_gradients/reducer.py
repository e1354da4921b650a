"""Sums the gradients of one optimizer over ranks during the backward pass."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cloudtrain.distributed._gradients import Compressor
from cloudtrain.distributed.errors import GradientOrderError, InvalidArgument
from cloudtrain.distributed.options import AUTOTUNE, FUSION_THRESHOLD, fusion_threshold
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, Max, ReduceOp, Sum
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._gradients.autotune import tuning_of
from cloudtrain.distributed.torch._gradients.backward_passes import (
    MOST_REDUCERS,
    BackwardPass,
    current_task,
    in_several_threads,
    reduce_now,
)
from cloudtrain.distributed.torch._gradients.buckets import (
    FIRST_BYTES,
    Bucket,
    Slot,
    accumulate,
    share_out,
)
from cloudtrain.distributed.torch._gradients.late_gradients import LateGradients
from cloudtrain.distributed.torch._gradients.parameters import (
    check_equal_on_all_ranks,
    describe,
    warn_of_different_weights,
)
from cloudtrain.distributed.torch._operation import group_of
from cloudtrain.distributed.torch.collectives import allreduce_, sparse_allreduce_async


@dataclass(frozen=True)
class Reduction:
    """How gradients are reduced."""

    op: ReduceOp
    """Average or Sum."""
    predivide: float
    """Splits the division of Average: this factor divides before the sum, the rest after it."""
    compression: type[Compressor]
    sparse_as_dense: bool
    process_set: ProcessSet

    def factors(self) -> tuple[float, float]:
        """The factors before and after the sum."""
        if self.op != Average:
            return 1.0, 1.0
        if self.predivide == 1.0:
            # Used unless the backend averages. Dividing before the sum makes types with few bits less likely to
            # overflow.
            return 1.0 / self.process_set.size(), 1.0
        return 1.0 / self.predivide, self.predivide / self.process_set.size()


_alive: weakref.WeakSet[GradientReducer] = weakref.WeakSet()


class GradientReducer:
    """Hooks parameters, fills buckets, launches them in a fixed order, and waits for them.

    Each step reduces every bucket once: at the end of the last backward pass, or in `synchronize`. Gradients of the
    same step that arrive later are reduced one more time. They contain the first average, which is the same on all
    ranks, so that averaging them does not change that part.

    Buckets are created at the end of the first step, when the ranks can agree on which gradients are sparse. Sparse
    gradients are reduced one by one, negotiated by name.

    Args:
        names: the names of parameters, for errors. Their order is assumed to be that of the forward pass.
        groups: the group number of parameters that are reduced together.
        passes: backward passes whose gradients are accumulated before the reduction.
        parameters: returns the parameters at any time.
    """

    def __init__(
        self,
        names: Mapping[Tensor, str],
        groups: Mapping[Tensor, int],
        passes: int,
        reduction: Reduction,
        parameters: Callable[[], Iterable[Tensor]],
    ) -> None:
        self._spoiled = ""
        """The parameter whose gradient was changed during its reduction."""
        self.pending = False
        """Whether a gradient was computed that has not been reduced."""
        self.closed = True
        """Whether the next gradient begins a step."""
        self._reduced = False
        """Whether the buckets of the step have been reduced."""
        self._backwards = 0
        """Backward passes in this step."""
        self._task = -1
        """The backward pass of the last gradient."""
        self._ready: Slot | None = None
        """The last gradient, if it completes something that can be launched. The launch waits for the next gradient or
        the end of the pass, because the script's own hooks may still change this one."""
        self._partial: list[tuple[Tensor, int]] = []
        """Gradients at the end of a backward pass that was not the last one of the step, and their versions."""
        self._names = dict(names)
        self._groups = groups
        self._passes = passes
        self._reduction = reduction
        self._parameters = parameters
        self._slots: dict[Tensor, Slot] = {}
        """In the order in which gradients are expected."""
        self._watched: dict[Tensor, Any] = {}
        """Parameters without a slot that may get gradients, and the handles of their hooks."""
        self._rivals: dict[weakref.ref[GradientReducer], str] = {}
        """The reducers of other optimizers, each with a parameter that it has in common with this one."""
        self._late = LateGradients(reduction.op, reduction.process_set)
        self._launched = 0
        self._arriving = threading.Lock()
        """Autograd has a thread for each GPU, and calls hooks of CPU parameters in the thread of ``backward``."""
        self.number = 0
        """The number of this optimizer: the same on all ranks, and different from those of the other optimizers."""
        self.shares = False
        """Whether there are other optimizers among the same ranks. One backward pass may then fill the buckets of
        several, in an order that may depend on the data, so nothing is launched before its end."""
        self._steps_in: int | None = None
        """The thread of the last step; None before the first one."""
        self._stepped = False
        """Whether this optimizer has made a step since the last step of the others."""
        self._begin()
        self.track()
        self.watch()
        self._count()

    def _count(self) -> None:
        """Agree on the number of this optimizer, and on whether there are others among the same ranks."""
        others = self.others()
        used = torch.zeros(MOST_REDUCERS, dtype=torch.uint8)
        for each in others:
            used[each.number] = 1
        name, process_set = "DistributedOptimizer.number", self._reduction.process_set
        numbers = allreduce_(used, name=name, op=Max, process_set=process_set).tolist()
        if 0 not in numbers:
            raise InvalidArgument(
                f"there are {MOST_REDUCERS} optimizers", hint="Delete those that have ended."
            )
        self.number, self.shares = numbers.index(0), any(numbers)
        for each in others:
            each.shares = self.shares
        _alive.add(self)

    def others(self) -> list[GradientReducer]:
        """The reducers of the other optimizers among the same ranks."""
        return [each for each in _alive if each is not self and each.process_set == self.process_set]

    @property
    def process_set(self) -> ProcessSet:
        return self._reduction.process_set

    def _begin(self) -> None:
        """Start without buckets; also called after a new ``init``."""
        self._context = weakref.ref(_state.current())
        self._bucket_bytes = fusion_threshold()
        self._tuning = tuning_of(self._reduction.process_set)
        self._prescale, self._postscale = self._reduction.factors()
        self._step = -1
        self._buckets: list[Bucket] = []
        self._sparse: dict[Slot, int] = {}
        """Slots without a bucket, and the sparse dimensions of their gradients."""
        self._unplaced = list(self._slots.values())
        for slot in self._unplaced:
            slot.bucket = slot.view = None

    def _begin_step(self) -> None:
        """Reset the step, and after a new ``init`` the buckets, because the ranks may have failed at any point."""
        if self._context() is not _state.current():
            self._begin()
        elif self._tuning is not None:
            self._resize(self._tuning.begin())
        self._step += 1
        self._launched = self._backwards = 0
        self.closed = self._reduced = self.pending = False
        for bucket in self._buckets:
            bucket.reset()
        passes = self._passes
        for slot in self._slots.values():
            slot.passes_left, slot.handle = passes, None

    def watch(self) -> None:
        """Detect the first gradients of parameters that are frozen now, or were added to the optimizer.

        A backward pass may compute no others. A slot is created only at the end of the pass, when the ranks agree on
        it.
        """
        for parameter in self._parameters():
            trainable = parameter.is_floating_point() or parameter.is_complex()
            if parameter in self._slots or parameter in self._watched or not trainable:
                continue
            frozen = not parameter.requires_grad
            parameter.requires_grad_()  # without it, torch takes no hook
            register: Any = parameter.register_post_accumulate_grad_hook
            handle = self._watched[parameter] = register(_hook(weakref.ref(self), None))
            weakref.finalize(self, handle.remove)
            parameter.requires_grad_(not frozen)

    def track(self) -> None:
        """Add the optimizer's parameters that are new, or were frozen before.

        Raises:
            InvalidArgument: they differ between ranks.
        """
        new = [p for p in self._parameters() if p.requires_grad and p not in self._slots]
        if not new:
            return
        for parameter in new:
            self._names.setdefault(parameter, f"allreduce.noname.{len(self._names)}")
        for other in _alive:
            common = next((self._names[p] for p in new if p in other._slots), None)
            if common is not None and other is not self:
                self._rivals[weakref.ref(other)] = common
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
            register: Any = parameter.register_post_accumulate_grad_hook
            weakref.finalize(self, register(_hook(weakref.ref(self), slot)).remove)
            watching = self._watched.pop(parameter, None)
            if watching is not None:
                watching.remove()

    def arrived(self, slot: Slot | None) -> None:
        """Called after a backward pass has added to the gradient of ``slot``, possibly from several threads."""
        with self._arriving:
            task = current_task()
            if task != self._task:
                self._task, self._ready = task, None
                self._partial.clear()
                BackwardPass.reaches(self)
                if self._reduced and self._zeroed_before(slot):
                    self.close()
            if self._ready is not None:
                self._launch_ready()
            if slot is None:
                self.forget_other_context()
                if self.closed:
                    self._begin_step()
                self.pending = True
                return
            bucket = slot.bucket
            if bucket is not None and bucket.missing > 1 and slot.passes_left == 1 and self.pending:
                slot.passes_left = 0  # the only step for most gradients
                bucket.arrived(slot)
            else:
                self._arrived(slot)

    def _arrived(self, slot: Slot) -> None:
        if slot.passes_left <= 0:
            self.forget_other_context()
        if self.closed:
            self._begin_step()
        if slot.passes_left <= 0:
            self._spoiled = slot.name
            raise GradientOrderError(
                "Gradients were computed more than backward_passes_per_step times before call to step(). "
                "Increase backward_passes_per_step to accumulate gradients locally.",
                hint="To drop gradients, call optimizer.synchronize() on all ranks, and then optimizer.zero_grad(). "
                "After model.zero_grad(set_to_none=False), or in an unfinished step, the passes before still count.",
            )
        self.pending = True
        slot.passes_left -= 1
        if self._reduced:
            self._late.add(slot)
            return
        if slot.passes_left:
            accumulate(slot)
            return
        bucket = slot.bucket
        if bucket is not None:
            bucket.arrived(slot)
            if not bucket.missing and not self.shares:
                self._ready = slot
        elif slot in self._sparse:
            self._ready = slot

    def _zeroed_before(self, slot: Slot | None) -> bool:
        """Whether ``model.zero_grad()`` has dropped all reduced gradients but that of ``slot``, which begins a step."""
        if slot is not None and (slot.bucket is None or slot.sparse_dim or slot.parameter.grad is slot.view):
            return False
        return all(each is slot or each.parameter.grad is None for each in self._slots.values())

    def backward_ended(self) -> bool:
        """Count a backward pass. Returns whether it was the last one of the step, or came after it."""
        self._backwards += 1
        if self._reduced or self._backwards >= self._passes:
            return self.pending
        gradients = (slot.parameter.grad for slot in self._slots.values())
        self._partial = [(each, each._version) for each in gradients if each is not None]
        return False

    def synchronize(self) -> None:
        """End a step: reduce the remaining gradients, with zeros for missing ones, and wait for them."""
        self.forget_other_context()
        partial, self._partial = self._partial, []
        if any(gradient._version != version for gradient, version in partial):
            raise GradientOrderError(
                f"gradients were changed after {self._backwards} of {self._passes} backward passes "
                "(backward_passes_per_step), before they were averaged over the ranks",
                hint="In a step with fewer backward passes, call optimizer.synchronize() before you clip or unscale.",
            )
        if self.closed and not self._reduced:
            self._begin_step()
        if self.pending or not self._reduced:
            reduce_now([self], [self])
        self.closed = True
        if self._spoiled:
            spoiled, self._spoiled = self._spoiled, ""
            raise GradientOrderError(
                f"the gradients of this step are invalid: an extra backward pass changed the gradient of {spoiled} "
                "during its reduction",
                hint="Skip this step: call zero_grad(), and continue with the next batch.",
            )

    def begin(self) -> None:
        """Begin a step if none has begun: another rank has gradients."""
        if self.closed:
            self._begin_step()

    def launch(self) -> None:
        """Start to reduce all gradients that no hook has started to reduce."""
        self._ready = None
        if self._reduced:
            self._late.launch()
            return
        self.track()
        if self._rivals:
            self._check_rivals()
        for slot in self._sparse:
            if slot.handle is None:
                self._launch_sparse(slot)
        for bucket in self._buckets:
            bucket.missing = 0
        self._place()
        self._launch_full()

    def _check_rivals(self) -> None:
        """Raises InvalidArgument if a rival is still alive, because a gradient would be divided twice."""
        gc.collect()
        for rival, name in list(self._rivals.items()):
            if rival() is not None:
                raise InvalidArgument(
                    f"two optimizers average the gradient of {name}",
                    hint="Delete the one that you no longer use, with its schedulers; or give each its own parameters.",
                )
            del self._rivals[rival]

    def finish(self) -> None:
        """Wait for the reduction, and assign the gradients."""
        if self._reduced:
            self._late.finish()
        else:
            for bucket in self._buckets:
                bucket.finish()
            for slot in self._sparse:
                assert slot.handle is not None
                slot.give_back(slot.handle.wait())
            self._late.expect(slot for slot in self._slots.values() if slot.passes_left > 0)
            if self._tuning is not None:
                self._tuning.step_ended()
        self._reduced, self.pending = True, False

    def forget_other_context(self) -> None:
        """Drop a step that began before the current ``init``: it failed, or some ranks left it."""
        if not self.closed and self._context() is not _state.current_or_none():
            self.forget()

    def forget(self) -> None:
        """Drop the gradients computed since the last `synchronize`."""
        for bucket in self._buckets:
            if bucket.handle is not None:
                bucket.abandon()
        self.pending = False
        self.close()

    def close(self) -> None:
        """End a step without a reduction, unless one is due."""
        if not self.pending:
            self.closed, self._reduced, self._spoiled = True, False, ""
            self._late.clear()

    def check_thread(self) -> None:
        """Raises InvalidArgument if another optimizer has made a step in another thread since this one's last step."""
        before, self._steps_in, self._stepped = self._steps_in, threading.get_ident(), True
        for other in self.others() if self.shares else ():
            if before is not None and other._stepped and other._steps_in != self._steps_in:
                raise in_several_threads()
            other._stepped = False

    def set_passes(self, passes: int) -> None:
        """Change the number of accumulated backward passes; only while nothing is `pending`."""
        self._passes = passes
        self.close()

    def _place(self) -> None:
        """Assign slots without a bucket to one, and reduce their gradients."""
        if not self._unplaced:
            return
        for slot in self._unplaced:
            slot.take()
        self._agree_on_sparse()
        unplaced, self._unplaced = self._unplaced, []
        parameters = [slot.parameter for slot in unplaced]
        warn_of_different_weights(parameters, [slot.name for slot in unplaced], self._reduction.process_set)
        buckets = self._made([slot for slot in unplaced if slot not in self._sparse])
        self._buckets += buckets
        for bucket in buckets:
            bucket.missing = 0
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
        """Use buckets of this size from the next step on; called at the same step on all ranks."""
        if bucket_bytes == self._bucket_bytes:
            return
        self._bucket_bytes = bucket_bytes
        placed = [slot for slot in self._slots.values() if slot.bucket is not None]
        for slot in placed:
            slot.view = None
        self._buckets = []
        self._buckets = self._made(placed)

    def _agree_on_sparse(self) -> None:
        """Agree that a gradient that is sparse on one rank counts as sparse on all, even on ranks without one."""
        if self._reduction.sparse_as_dense:
            return
        dims = torch.tensor([slot.sparse_dim for slot in self._unplaced])
        name, process_set = "DistributedOptimizer.sparse_dim", self._reduction.process_set
        allreduce_(dims, name=name, op=Max, process_set=process_set)
        for slot, sparse_dim in zip(self._unplaced, dims.tolist()):
            if sparse_dim:
                self._sparse[slot] = sparse_dim

    def _launch_ready(self) -> None:
        slot, self._ready = self._ready, None
        if slot in self._sparse:
            self._launch_sparse(slot)
        else:
            self._launch_full()

    def _launch_full(self) -> None:
        """Launch the full buckets, in order."""
        while self._launched < len(self._buckets) and self._buckets[self._launched].missing == 0:
            bucket = self._buckets[self._launched]
            group, reduction = group_of(self._reduction.process_set), self._reduction
            averages = reduction.op == Average and reduction.predivide == 1.0 and bucket.averaged_by(group)
            bucket.fill(1.0 if averages else self._prescale)
            op = Average if averages else Sum
            bucket.launch(group, op, reduction.compression, self._postscale, self._step)
            self._launched += 1

    def _launch_sparse(self, slot: Slot) -> None:
        gradient = slot.take()
        shape, sparse_dim = slot.parameter.shape, self._sparse[slot]
        if gradient is None:
            indices = torch.empty(sparse_dim, 0, dtype=torch.int64, device=slot.parameter.device)
            values = slot.parameter.detach().new_empty(0, *shape[sparse_dim:])
            gradient = torch.sparse_coo_tensor(indices, values, shape, check_invariants=False)
        elif not gradient.is_sparse:
            gradient = gradient.to_sparse(sparse_dim)
        op, process_set = self._reduction.op, self._reduction.process_set
        slot.handle = sparse_allreduce_async(gradient, slot.name, op, process_set)


def _hook(reducer: weakref.ref[GradientReducer], slot: Slot | None) -> Callable[[Tensor], None]:
    """A hook for the parameter of ``slot``, which may outlive its optimizer and must not keep it alive."""

    def arrived(_: Tensor) -> None:
        alive = reducer()
        if alive is not None:
            alive.arrived(slot)

    return arrived
