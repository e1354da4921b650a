"""A PyTorch training as a state, and back.

    from cloudtrain.checkpoint import Checkpointer
    from cloudtrain.checkpoint.torch import capture, restore_or_broadcast

    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "sampler": sampler}
    step = restore_or_broadcast(checkpointer, **parts) or 0
    ...
    checkpointer.maybe_save(step, lambda: capture(**parts))

A part is anything with ``state_dict`` and ``load_state_dict``. No part is pickled: a state is numbers, text and
tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Optional, Protocol

import torch
from torch import Tensor

import cloudtrain.distributed.torch as hvd
from cloudtrain.checkpoint import _random
from cloudtrain.checkpoint._sampler import ResumableSampler
from cloudtrain.checkpoint.checkpointer import Checkpointer
from cloudtrain.distributed import World
from cloudtrain.errors import CheckpointError, CloudtrainError

__all__ = ["ResumableSampler", "apply", "capture", "restore_or_broadcast"]


class Stateful(Protocol):
    """A part of a training: a scheduler, a gradient scaler, a sampler."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state_dict: Any) -> Any: ...


Model = Optional[torch.nn.Module]
Optimizer = Optional[torch.optim.Optimizer]
Part = Optional[Stateful]


def capture(
    *,
    model: Model = None,
    optimizer: Optimizer = None,
    scheduler: Part = None,
    scaler: Part = None,
    sampler: Part = None,
    rng: bool = True,
) -> dict[str, Any]:
    """The state of all that is given, to be saved or added to.

    Tensors are those of the training itself, not copies: save them before the next step.

    Args:
        rng: with the random states of torch, its current CUDA device, NumPy and Python.
    """
    given = _given(model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, sampler=sampler)
    state = {name: _without_counters(part.state_dict()) for name, part in given.items()}
    return {**state, "rng": _random.capture()} if rng else state


def apply(
    state: Mapping[str, Any],
    *,
    model: Model = None,
    optimizer: Optimizer = None,
    scheduler: Part = None,
    scaler: Part = None,
    sampler: Part = None,
    rng: bool = True,
) -> None:
    """The inverse of `capture`, for what is given.

    Args:
        rng: the rank that captured the random states goes on bit for bit. Another gets streams of its own that
            follow from them and its rank: it would repeat the first one's random numbers otherwise.

    Raises:
        CheckpointError: the state lacks a part, or does not fit it; a tensor of another dtype or shape is named.
            The model is then as it was.
    """
    given = _given(optimizer=optimizer, scheduler=scheduler, scaler=scaler, sampler=sampler)
    missing = sorted(({*given} | ({"model"} if model else set()) | ({"rng"} if rng else set())) - {*state})
    if missing:
        raise CheckpointError(
            f"the checkpoint has no {', '.join(missing)}",
            hint=f"It has {', '.join(map(str, state))}: leave the others out.",
        )
    if model is not None:
        _check_model(model.state_dict(), state["model"])
    for name, part in given.items():
        try:
            part.load_state_dict(_with_counters(part.state_dict(), state[name]))
        except (ValueError, KeyError, TypeError, RuntimeError, CloudtrainError) as error:
            raise CheckpointError(f"the checkpoint does not fit the {name}: {error}") from error
    if model is not None:
        model.load_state_dict(state["model"])
    if rng:
        _random.apply(state["rng"])


def restore_or_broadcast(
    checkpointer: Checkpointer,
    *,
    model: Model = None,
    optimizer: Optimizer = None,
    scheduler: Part = None,
    scaler: Part = None,
    sampler: Part = None,
    rng: bool = True,
) -> int | None:
    """Start all ranks alike: from the latest checkpoint, which rank 0 reads, or from rank 0's fresh parts.

    Every rank calls it, after ``hvd.init()``; a process alone needs no ``init``. The model's tensors are filled
    in place. After an error they may hold anything.

    Returns:
        The step of the checkpoint, or None where there is none yet.

    Raises:
        CheckpointError: rank 0 cannot restore, which all ranks hear; or there are ranks, and no ``init``.
        CollectiveError: a rank is gone.
    """
    if checkpointer.sharded:
        raise CheckpointError(
            "restore_or_broadcast has rank 0 read all, and this Checkpointer is sharded",
            hint="Call its restore(into=...) on every rank.",
        )
    parts = _given(scheduler=scheduler, scaler=scaler, sampler=sampler)
    if not hvd.is_initialized() and World.from_environ().size > 1:
        raise CheckpointError(
            "this is one of several ranks, and they have not met",
            hint="Call hvd.init() of cloudtrain.distributed.torch first.",
        )
    several = hvd.is_initialized() and hvd.size() > 1
    first = not several or hvd.rank() == 0
    step, rest, failed = None, {}, None
    if first:
        try:
            into = None if model is None else {"model": model.state_dict()}  # no second copy of it
            checkpoint = checkpointer.restore(into=into)
            if checkpoint is not None:
                apply(checkpoint.state, model=model, optimizer=optimizer, **parts, rng=rng)
                step = checkpoint.step
                rest = {name: checkpoint.state[name] for name in (*parts, *(["rng"] if rng else []))}
        except CloudtrainError as error:
            failed = error
    if several:
        step, rest, why = hvd.broadcast_object((step, rest, failed and failed.message), 0, "checkpoint")
        if why is not None and not first:
            raise CheckpointError(f"rank 0 cannot restore: {why}")
    if failed is not None:
        raise failed
    if several:
        _broadcast(model, optimizer)
    if step is not None and not first:
        apply(rest, **parts, rng=rng)
    return step


def _broadcast(model: Model, optimizer: Optimizer) -> None:
    if model is not None:
        state = model.state_dict()
        hvd.broadcast_parameters({name: value for name, value in state.items() if _is_tensor(value)}, 0)
        extra = {name: value for name, value in state.items() if not _is_tensor(value)}
        if extra:
            model.load_state_dict(hvd.broadcast_object(extra, 0, "extra state"), strict=False)
    if optimizer is not None:
        hvd.broadcast_optimizer_state(optimizer, 0)


def _given(**parts: Any) -> dict[str, Any]:
    return {name: part for name, part in parts.items() if part is not None}


def _check_model(own: Mapping[str, Any], loaded: Mapping[str, Any]) -> None:
    """Raises CheckpointError. torch itself would convert a dtype without a word."""
    wrong = [f"{name} is not in the checkpoint" for name in own if name not in loaded]
    wrong += [f"{name} is not in the model" for name in loaded if name not in own]
    for name in own:
        here, there = _what(own[name]), _what(loaded.get(name))
        if name in loaded and here != there:
            wrong.append(f"{name} is {there} in the checkpoint and {here} in the model")
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise CheckpointError(f"the checkpoint does not fit the model: {'; '.join(wrong[:3])}{more}")


def _what(value: Any) -> str:
    if not _is_tensor(value):
        return "no tensor"
    return f"{str(value.dtype).replace('torch.', '')} {list(value.shape)}"


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _without_counters(value: Any) -> Any:
    """With plain dicts for the Counters of a MultiStepLR."""
    if isinstance(value, Counter):
        return dict(value)
    if type(value) is dict:
        return {key: _without_counters(item) for key, item in value.items()}
    return [_without_counters(item) for item in value] if type(value) is list else value


def _with_counters(own: Any, loaded: Any) -> Any:
    """``loaded`` with Counters where ``own`` has them."""
    if isinstance(own, Counter):
        return Counter(loaded)
    if type(own) is dict and type(loaded) is dict:
        return {key: _with_counters(own.get(key), item) for key, item in loaded.items()}
    if type(own) is list and type(loaded) is list and len(own) == len(loaded):
        return [_with_counters(*pair) for pair in zip(own, loaded)]
    return loaded
