"""Optimizers that step with the gradients of all ranks."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Callable

import torch
from torch import Tensor

from cloudtrain import observe
from cloudtrain.distributed._gradients import (
    Compressor,
    check_passes,
    check_predivide_factor,
    warn_num_groups,
)
from cloudtrain.distributed.errors import GradientOrderError, InvalidArgument
from cloudtrain.distributed.options import fusion_threshold
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Adasum, Average, ReduceOp, Sum
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._adasum import adasum_
from cloudtrain.distributed.torch._failures import check_alive
from cloudtrain.distributed.torch._gradients.parameters import (
    check_equal_on_all_ranks,
    describe,
    group_numbers,
    names_of,
    parameters_of,
)
from cloudtrain.distributed.torch._gradients.reducer import GradientReducer, Reduction
from cloudtrain.distributed.torch._launches import launch_now
from cloudtrain.distributed.torch._operation import group_of
from cloudtrain.distributed.torch._state import global_process_set
from cloudtrain.distributed.torch.collectives import allreduce_
from cloudtrain.distributed.torch.compression import Compression
from cloudtrain.distributed.torch.objects import allgather_object
from cloudtrain.observe.timeline import recorder


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """``optimizer`` with the same class, state and parameters, whose gradients are averaged over ranks.

    Gradients are reduced while the backward pass still runs. When the last one of a step returns, they are averages:
    clip them, unscale them with ``GradScaler`` or log their norm as on one rank. In a step with fewer backward passes
    than ``backward_passes_per_step``, ``synchronize`` or ``step`` reduces them. A parameter without a gradient on some
    ranks counts as zero there. Ranks call ``backward`` equally often. Horovod's recipe has the same result::

        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()

    With several optimizers, all ranks call the steps in the same order. A closure passed to ``step`` returns the loss
    averaged over ranks, so that a line search makes the same decisions on all ranks.

    Every rank creates its optimizer with the same parameters in the same order.

    Args:
        named_parameters: ``model.named_parameters()``. The names are used in errors; the order, that of the forward
            pass, allows an early reduction if the optimizer has several parameter groups.
        compression: applied to gradients while they are sent.
        backward_passes_per_step: backward passes whose gradients are accumulated on the rank before the reduction.
        op: Average or Sum; or Adasum: every rank makes its own step, and the ranks then combine the changes of each
            parameter (Maleki et al. 2020, https://arxiv.org/abs/2006.02924).
        gradient_predivide_factor: splits the division of Average: gradients are divided by it before the sum, and
            multiplied by it and divided by the number of ranks after the sum.
        num_groups: deprecated; use ``groups``.
        groups: lists of parameters whose gradients are reduced together; or the number of such groups. By default
            gradients are reduced in buckets of 25 MB.
        sparse_as_dense: reduce sparse gradients as dense ones, together with the others. By default their indices and
            values are gathered. Parameters get sparse gradients in both cases.
        process_set: the ranks that reduce gradients; on other ranks ``step`` is the wrapped optimizer's.

    Raises:
        InvalidArgument: names are not unique or do not cover the optimizer's parameters, arguments are contradictory,
            or the ranks' parameters differ. Also a ValueError.
    """
    _state.current()  # raises NotInitialized
    if isinstance(optimizer, (_Distributed, AdasumOptimizer)):
        raise InvalidArgument("the optimizer is a DistributedOptimizer already")
    if op not in (Average, Sum, Adasum):
        raise InvalidArgument(
            f"op={op!r} is not supported by DistributedOptimizer", hint="Average, Sum or Adasum."
        )
    check_predivide_factor(gradient_predivide_factor, op)
    check_passes(backward_passes_per_step)
    warn_num_groups(num_groups)
    if num_groups != 0 and groups is None:
        groups = num_groups
    names = names_of(optimizer, named_parameters)
    own = set(parameters_of(optimizer))
    numbers = group_numbers(groups, (p for p in names if p in own))
    reduces = process_set.included() and process_set.size() > 1
    if op == Adasum and reduces:
        trained = [describe(names[p], p) for p in parameters_of(optimizer) if p.requires_grad]
        check_equal_on_all_ranks(trained, process_set)
        return _with_class(optimizer, AdasumOptimizer, _process_set=process_set, _compression=compression)
    reducer = None
    if reduces:
        reduction = Reduction(op, gradient_predivide_factor, compression, sparse_as_dense, process_set)
        trained_by = partial(parameters_of, optimizer)
        reducer = GradientReducer(names, numbers, backward_passes_per_step, reduction, trained_by)
    # Horovod's name for the attribute: scripts read it.
    named = {"_parameter_names": names}
    return _with_class(optimizer, _Distributed, _reducer=reducer, _process_set=process_set, **named)


class _Distributed(torch.optim.Optimizer):
    """Precedes the optimizer's class in the method resolution order."""

    _reducer: GradientReducer | None
    """None with a single rank."""
    _process_set: ProcessSet
    _synchronized = False
    _should_synchronize = True
    _scaled = False
    """Whether ``GradScaler`` called `synchronize`."""

    def synchronize(self) -> None:
        """Average gradients over all ranks, unless the last backward pass has. May be called repeatedly."""
        if self._reducer is not None:
            self._reducer.synchronize()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """In this block ``step`` does not synchronize, because `synchronize` was called before."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        if self._should_synchronize:
            if closure is not None and self._reducer is not None:
                closure = self._averaged(closure)
            elif not self._synchronized or (self._reducer is not None and not self._reducer.closed):
                self.synchronize()
            elif not self._scaled:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() context after "
                    "optimizer.synchronize(). Gradients are not reduced again.",
                    stacklevel=3,
                )
        self._synchronized = self._scaled = False
        if self._reducer is not None:
            self._reducer.check_thread()
        observe.beat()
        result = super().step() if closure is None else super().step(closure)
        if self._reducer is not None:
            self._reducer.close()
        recorder.step_ended()
        return result

    # The base class's step is hooked and profiled already; this keeps torch from doing it again.
    step.hooked = True  # type: ignore[attr-defined]

    def zero_grad(self, set_to_none: bool = True) -> None:
        if self._pending:
            raise GradientOrderError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition.",
                hint="To skip a step, call optimizer.synchronize() on all ranks, and then zero_grad().",
            )
        if self._reducer is not None:
            self._reducer.close()
        self._synchronized = False
        super().zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        if self._reducer is not None:
            self._reducer.watch()

    def load_state_dict(self, state_dict: Any) -> None:
        if self._reducer is not None:
            self._reducer.forget()
        self._synchronized = False
        groups = self.param_groups
        super().load_state_dict(state_dict)
        # A scheduler created with the wrapped optimizer holds this list.
        groups[:] = self.param_groups
        self.param_groups = groups

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise _not_copied()

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Change the number of backward passes whose gradients are accumulated before the reduction.

        Raises:
            GradientOrderError: between a backward pass and its step.
        """
        check_passes(passes)
        if self._pending:
            raise GradientOrderError(
                "set_backward_passes_per_step() was called after loss.backward() but before optimizer.step()"
            )
        if self._reducer is not None:
            self._reducer.set_passes(passes)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """``GradScaler.step`` reads this first, then the gradients, and may skip ``step``. So this ends the step."""
        if self._should_synchronize and self._reducer is not None and not self._reducer.closed:
            self.synchronize()
            self._scaled = True
        return bool(vars(self).get("_step_supports_amp_scaling", False))

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, supported: bool) -> None:
        vars(self)["_step_supports_amp_scaling"] = supported

    @property
    def _pending(self) -> bool:
        if self._reducer is None:
            return False
        self._reducer.forget_other_context()
        return self._reducer.pending

    def _averaged(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def averaged() -> Any:
            assert self._reducer is not None
            self._reducer.close()
            with torch.enable_grad():
                loss = closure()
            self.synchronize()
            is_tensor = isinstance(loss, Tensor)
            value = loss.detach().clone() if is_tensor else torch.tensor(float(loss))
            value = allreduce_(value, name="DistributedOptimizer.loss", process_set=self._process_set)
            return value if is_tensor else value.item()

        return averaged


def _not_copied() -> InvalidArgument:
    return InvalidArgument(
        "a DistributedOptimizer cannot be copied or pickled",
        hint="Keep its state_dict(). For a copy of the model, wrap a new optimizer.",
    )


def _with_class(optimizer: torch.optim.Optimizer, mixin: type[Any], **attributes: Any) -> Any:
    """A copy of ``optimizer`` that shares its state, of a class with the same name that inherits ``mixin`` first."""
    base = type(optimizer)
    cls: Any = type(base.__name__, (mixin, base), {"__module__": base.__module__})
    distributed = cls.__new__(cls)
    # Leave out the instance's own ``step``: a scheduler may have wrapped it, and it would bypass the mixin's.
    distributed.__dict__.update({key: value for key, value in vars(optimizer).items() if key != "step"})
    distributed.__dict__.update(attributes)
    return distributed


class AdasumOptimizer(torch.optim.Optimizer):
    """Precedes the optimizer's class in the method resolution order.

    Every rank makes a step with its own gradients; the ranks then combine the changes of each parameter with Adasum.
    Each rank has its own optimizer state. Nothing is exchanged during the backward pass.
    """

    _process_set: ProcessSet
    _compression: type[Compressor]

    def synchronize(self) -> None:
        """Does nothing: each rank keeps its own gradients."""

    def skip_synchronize(self) -> AbstractContextManager[None]:
        raise GradientOrderError("Skipping synchronization is not supported when using Adasum optimizer.")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        parameters = _trained(list(parameters_of(self)), self._process_set)
        starts = [p.clone() for p in parameters]
        loss = super().step() if closure is None else super().step(closure)
        for parameter, start in zip(parameters, starts):
            parameter.sub_(start)
        for deltas in _batches(parameters):
            self._combine_(deltas)
        for parameter, start in zip(parameters, starts):
            parameter.add_(start)
        observe.beat()
        recorder.step_ended()
        return loss

    # The base class's step is hooked and profiled already; this keeps torch from doing it again.
    step.hooked = True  # type: ignore[attr-defined]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise _not_copied()

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Does nothing: all gradients since `zero_grad` count."""

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """``GradScaler.step`` reads this first."""
        raise InvalidArgument(
            "GradScaler does not work with op=Adasum: it would skip a step on some ranks only",
            hint="Train in bfloat16, which needs no GradScaler, or with op=Average.",
        )

    def _combine_(self, deltas: list[Tensor]) -> None:
        compressed = [self._compression.compress(delta) for delta in deltas]
        wires = [wire for wire, _ in compressed]
        label, group = "Adasum of the optimizer's step", group_of(self._process_set)

        def start(part: Sequence[Tensor]) -> None:
            adasum_(part, group, self._process_set.members())
            check_alive(label, group)  # on a GPU, a rank that has died causes wrong numbers, but no error

        launch_now(label, group, start, wires, op=Adasum, name=label)
        for delta, (wire, context) in zip(deltas, compressed):
            if wire is not delta:
                delta.copy_(self._compression.decompress(wire, context))


def _trained(parameters: list[Tensor], process_set: ProcessSet) -> list[Tensor]:
    """The parameters that the next step of some rank may change: each rank may have frozen others.

    Raises InvalidArgument on all ranks if their optimizers differ.
    """
    own = [p.requires_grad or p.grad is not None for p in parameters]
    everybody = allgather_object(own, "DistributedOptimizer.trained", process_set)
    if len(set(map(len, everybody))) > 1:
        check_equal_on_all_ranks([describe("a parameter", p) for p in parameters], process_set)
    return [p.detach() for p, *trained in zip(parameters, *everybody) if any(trained)]


def _batches(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Consecutive tensors of one type on one device, up to about the size of a bucket."""
    limit = fusion_threshold()
    batch: list[Tensor] = []
    size = 0
    for tensor in tensors:
        same_kind = batch and (batch[0].dtype, batch[0].device) == (tensor.dtype, tensor.device)
        if batch and (not same_kind or size >= limit):
            yield batch
            batch, size = [], 0
        batch.append(tensor)
        size += tensor.numel() * tensor.element_size()
    if batch:
        yield batch
