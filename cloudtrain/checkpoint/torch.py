"""The state of a PyTorch training run: captures it for a checkpoint, and applies a restored one.

    from cloudtrain.checkpoint import Checkpointer
    from cloudtrain.checkpoint.torch import capture, restore_or_broadcast

    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "sampler": sampler}
    step = restore_or_broadcast(checkpointer, **parts) or 0
    ...
    checkpointer.maybe_save(step, lambda: capture(**parts))

A part is any object with ``state_dict`` and ``load_state_dict``. Nothing is pickled: a state consists of numbers, text
and tensors.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Optional, Protocol

import torch
from torch import Tensor
from torch.utils.data import Sampler

import cloudtrain.distributed.torch as hvd
from cloudtrain import environment
from cloudtrain.checkpoint.checkpointer import Checkpointer
from cloudtrain.distributed import World
from cloudtrain.errors import CheckpointError, CloudtrainError

__all__ = ["ResumableSampler", "apply", "capture", "restore_or_broadcast"]


class Stateful(Protocol):
    """A part of the training, such as a scheduler, a gradient scaler or a sampler."""

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
    """The state of the given parts, to be saved or extended.

    Its tensors are those of the training, not copies: save them before the next step.

    Args:
        rng: include the random states of torch, its current CUDA device, NumPy and Python.
    """
    given = _given(model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, sampler=sampler)
    state = {name: _without_counters(part.state_dict()) for name, part in given.items()}
    return {**state, "rng": _capture_rng()} if rng else state


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
    """The inverse of `capture`, for the given parts.

    Args:
        rng: restore the random states. The rank that captured them continues bit for bit. Other ranks derive
            their own streams from them and their rank, as they would otherwise all draw the same numbers.

    Raises:
        CheckpointError: the state lacks a part or does not fit it; the message names tensors whose dtype or shape
            differs. The model is then unchanged.
    """
    given = _given(optimizer=optimizer, scheduler=scheduler, scaler=scaler, sampler=sampler)
    missing = sorted(({*given} | ({"model"} if model else set()) | ({"rng"} if rng else set())) - {*state})
    if missing:
        raise CheckpointError(
            f"the checkpoint has no {', '.join(missing)}",
            hint=f"It has {', '.join(map(str, state))}: omit the others.",
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
        _apply_rng(state["rng"])


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
    """Start all ranks with the same state: that of the latest checkpoint, read by rank 0, or rank 0's initial one.

    Call it on every rank, after ``hvd.init()``; a single process needs no ``init``. The model's tensors are filled
    in place. After an error their contents are undefined.

    Returns:
        The step of the checkpoint, or None if there is none yet.

    Raises:
        CheckpointError: rank 0 cannot restore (raised on all ranks), or there are several ranks without ``init``.
        CollectiveError: a rank is gone.
    """
    if checkpointer.sharded:
        raise CheckpointError(
            "restore_or_broadcast lets rank 0 read everything, but this Checkpointer is sharded",
            hint="Call its restore(into=...) on every rank.",
        )
    parts = _given(scheduler=scheduler, scaler=scaler, sampler=sampler)
    if not hvd.is_initialized() and World.from_environ().size > 1:
        raise CheckpointError(
            "this is one of several ranks, but cloudtrain.distributed is not initialized",
            hint="Call init() of cloudtrain.distributed.torch first.",
        )
    several = hvd.is_initialized() and hvd.size() > 1
    first = not several or hvd.rank() == 0
    step, rest, failed = None, {}, None
    if first:
        try:
            into = None if model is None else {"model": model.state_dict()}  # avoids a second copy
            checkpoint = checkpointer.restore(into=into, alone=True)
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
    """Raises CheckpointError if the model does not fit; torch itself would silently convert dtypes."""
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
        return "not a tensor"
    return f"{str(value.dtype).replace('torch.', '')} {list(value.shape)}"


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _without_counters(value: Any) -> Any:
    """Turns the Counters of a MultiStepLR into plain dicts."""
    if isinstance(value, Counter):
        return dict(value)
    if type(value) is dict:
        return {key: _without_counters(item) for key, item in value.items()}
    return [_without_counters(item) for item in value] if type(value) is list else value


def _with_counters(own: Any, loaded: Any) -> Any:
    """``loaded``, with Counters in the places where ``own`` has them."""
    if isinstance(own, Counter):
        return Counter(loaded)
    if type(own) is dict and type(loaded) is dict:
        return {key: _with_counters(own.get(key), item) for key, item in loaded.items()}
    if type(own) is list and type(loaded) is list and len(own) == len(loaded):
        return [_with_counters(*pair) for pair in zip(own, loaded)]
    return loaded


def _capture_rng() -> dict[str, Any]:
    """The random states of torch, Python, and, if in use, NumPy and the current CUDA device.

    For NumPy that is the global state of ``numpy.random``. The state of a ``Generator`` can be saved directly: it is
    ``generator.bit_generator.state``.
    """
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {
        "rank": environment.rank(),
        "torch": torch.get_rng_state(),
        "python": {"version": version, "words": torch.tensor(words, dtype=torch.int64), "gauss": gauss},
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state()
    if "numpy" in sys.modules:
        import numpy as np

        state["numpy"] = np.random.get_state(legacy=True)
    return state


def _apply_rng(state: Mapping[str, Any]) -> None:
    """Continue from ``state`` on the rank that captured it; seed other ranks from it and their rank."""
    rank = environment.rank()
    if rank != state["rank"]:
        digest = hashlib.sha256(state["torch"].numpy().tobytes() + str(rank).encode()).digest()
        _seed(int.from_bytes(digest[:4], "little"))
        return
    torch.set_rng_state(state["torch"])
    python = state["python"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    if "numpy" in state:
        import numpy as np

        np.random.set_state(state["numpy"])


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        import numpy as np

        np.random.seed(seed)


class ResumableSampler(Sampler[int]):
    """Wraps a sampler so that training can resume in the middle of an epoch.

        sampler = ResumableSampler(DistributedSampler(dataset, hvd.size(), hvd.rank()))
        loader = DataLoader(dataset, batch_size=32, sampler=sampler)
        for epoch in range(sampler.epoch, epochs):
            if epoch != sampler.epoch:
                sampler.set_epoch(epoch)
            for number, batch in enumerate(loader):
                ...
                sampler.record_batch(number, len(batch))

    The training loop counts the batches, since a `DataLoader` prefetches. The methods are those of
    ``hvd.elastic.ElasticSampler``, which can resume without this wrapper.

    Args:
        sampler: its order must depend on the epoch only, as that of ``DistributedSampler`` does (with
            ``num_replicas=1, rank=0`` for a single process).
    """

    def __init__(self, sampler: Sampler[int]) -> None:
        self.sampler = sampler
        self.epoch = 0
        self._done = 0
        """Samples of this epoch processed by this rank."""

    @property
    def _replicas(self) -> int:
        return int(getattr(self.sampler, "num_replicas", 1))

    def set_epoch(self, epoch: int) -> None:
        """Start an epoch."""
        self._enter(epoch)
        self._done = 0

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Record that every rank has processed ``batch_size`` more samples; ``batch_idx`` is ignored."""
        self._done += batch_size

    def state_dict(self) -> dict[str, Any]:
        """The samples processed by all ranks, so that a different number of ranks can resume."""
        return {"epoch": self.epoch, "processed": self._done * self._replicas}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """On a different number of ranks no sample is skipped; up to one per rank may be repeated."""
        self._enter(state_dict["epoch"])
        self._done = state_dict["processed"] // self._replicas

    def __iter__(self) -> Iterator[int]:
        return islice(iter(self.sampler), self._done, None)

    def __len__(self) -> int:
        """The samples that this rank has left in this epoch."""
        return max(0, len(self.sampler) - self._done)  # type: ignore[arg-type]

    def _enter(self, epoch: int) -> None:
        self.epoch = epoch
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)
