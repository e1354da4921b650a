"""Any torch optimizer, stepping with the gradients of all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Callable

import torch
from torch import Tensor

from cloudtrain import observe
from cloudtrain.distributed.errors import GradientOrderError, InvalidArgument
from cloudtrain.distributed.torch import _session
from cloudtrain.distributed.torch._reducer import GradientReducer
from cloudtrain.distributed.torch._reduction import Average, ReduceOp, Sum
from cloudtrain.distributed.torch.collectives import allreduce_
from cloudtrain.distributed.torch.compression import Compression, Compressor


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
) -> Any:
    """``optimizer`` with its class, state and parameters, whose ``step`` averages gradients over ranks first.

    Gradients travel while the backward pass still runs; ``step`` waits for them. A parameter that got no
    gradient counts as zero, on the ranks where that is so. To work on the averaged gradients::

        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()

    and in the same way with ``GradScaler``: ``synchronize``, ``unscale_``, then ``scaler.step`` inside
    ``skip_synchronize``. A closure given to ``step`` returns the loss averaged over ranks, so that a line
    search decides alike on all.

    Args:
        named_parameters: ``model.named_parameters()``; names for errors, and in the order of the forward
            pass, which lets gradients travel early where the optimizer has several groups.
        compression: of gradients on the wire.
        backward_passes_per_step: backward passes whose gradients are summed up on the rank before they
            travel.
        op: Average or Sum.
        gradient_predivide_factor: splits the division of Average: gradients are divided by it before the
            sum, and multiplied by it and divided by the number of ranks after the sum.

    Raises:
        InvalidArgument: names are not unique, do not cover the optimizer's parameters, or an argument does
            not fit the others. Also a ValueError.
    """
    if isinstance(optimizer, _Distributed):
        raise InvalidArgument("the optimizer is a DistributedOptimizer already")
    if op not in (Average, Sum):
        raise InvalidArgument(f"op={op!r} is not supported by DistributedOptimizer", hint="Average or Sum.")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise InvalidArgument("gradient_predivide_factor not supported with op != Average")
    if backward_passes_per_step < 1:
        raise InvalidArgument(f"backward_passes_per_step={backward_passes_per_step} is below 1")
    names = _names(optimizer, named_parameters)
    base = type(optimizer)
    cls: Any = type(base.__name__, (_Distributed, base), {"__module__": base.__module__})
    distributed: Any = cls.__new__(cls)
    # Not the instance's ``step``: a scheduler that wrapped it would lead around ours.
    distributed.__dict__.update({key: value for key, value in vars(optimizer).items() if key != "step"})
    distributed._reducer = None
    if _session.size() > 1:
        prescale, postscale = 1.0, 1.0
        if op == Average:
            # One factor costs nothing while gradients are copied to their bucket; a second one does.
            prescale, postscale = 1.0 / _session.size(), 1.0
            if gradient_predivide_factor != 1.0:
                prescale = 1.0 / gradient_predivide_factor
                postscale = gradient_predivide_factor / _session.size()
        reducer = GradientReducer(names, compression, backward_passes_per_step, prescale, postscale)
        distributed._reducer = reducer
        reducer.track(_parameters(distributed))
    return distributed


class _Distributed(torch.optim.Optimizer):
    """Stands before the optimizer's own class in the order of resolution."""

    _reducer: GradientReducer | None
    """None in a world of one rank."""
    _synchronized = False
    _should_synchronize = True

    def synchronize(self) -> None:
        """Wait until gradients are averaged over all ranks."""
        if self._reducer is not None:
            self._reducer.track(_parameters(self))
            self._reducer.synchronize()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """``step`` in this block does not synchronize; `synchronize` was called before it."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        if self._should_synchronize and self._reducer is not None:
            if closure is not None:
                closure = self._averaged(closure)
            elif self._reducer.pending or not self._synchronized:
                self.synchronize()
        self._synchronized = False
        observe.beat()
        return super().step() if closure is None else super().step(closure)

    # The base class's step is hooked and profiled; torch is told not to do that once more.
    step.hooked = True  # type: ignore[attr-defined]

    def zero_grad(self, set_to_none: bool = True) -> None:
        if self._reducer is not None and self._reducer.pending:
            raise GradientOrderError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition."
            )
        super().zero_grad(set_to_none)

    def load_state_dict(self, state_dict: Any) -> None:
        if self._reducer is not None:
            self._reducer.reset()
        self._synchronized = False
        super().load_state_dict(state_dict)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Change how many backward passes are summed up before gradients travel."""
        if self._reducer is not None:
            self._reducer.reset(passes)

    def _averaged(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def averaged() -> Any:
            with torch.enable_grad():
                loss = closure()
            self.synchronize()
            if isinstance(loss, Tensor):
                return allreduce_(loss.detach().clone(), name="loss")
            return allreduce_(torch.tensor(float(loss)), name="loss").item()

        return averaged


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _names(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, Tensor]] | None
) -> dict[Tensor, str]:
    if named_parameters is None:
        return {p: f"allreduce.noname.{number}" for number, p in enumerate(_parameters(optimizer))}
    pairs = list(named_parameters)
    if any(not isinstance(pair, tuple) for pair in pairs):
        raise InvalidArgument(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
            "model.named_parameters()."
        )
    listed = [name for name, _ in pairs]
    if len(set(listed)) < len(listed):
        twice = sorted({name for name in listed if listed.count(name) > 1})
        raise InvalidArgument(
            f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(twice)}"
        )
    names = {parameter: name for name, parameter in pairs}
    unnamed = [tuple(p.shape) for p in _parameters(optimizer) if p not in names]
    if unnamed:
        raise InvalidArgument(
            "named_parameters was specified, but one or more model parameters were not named. "
            f"Shapes: {', '.join(map(str, unnamed))}"
        )
    return names
