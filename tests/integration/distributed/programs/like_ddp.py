"""Training equals that of DistributedDataParallel, bit for bit."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from _cases import DEVICE, run, seeded
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import cloudtrain.distributed.torch as hvd

PASSES = 2


def make_model() -> nn.Module:
    """Wide enough for two buckets."""
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(16, 600), nn.ReLU(), nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, 4))


def parts(step: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The batches of this rank in a step."""
    generator = seeded(100 * step + hvd.rank())
    for _ in range(PASSES):
        yield torch.randn(8, 16, generator=generator), torch.randn(8, 4, generator=generator)


class Loop:
    """A training loop. The two differ only in how they accumulate."""

    def __init__(self, kind: str, dtype: torch.dtype | None) -> None:
        self.model = make_model()
        plain = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.forward: Callable[..., Any] = self.model
        self.optimizer: Any = plain
        if kind == "DDP":
            self.forward = DistributedDataParallel(self.model)
        else:
            named = self.model.named_parameters()
            self.optimizer = hvd.DistributedOptimizer(plain, named, backward_passes_per_step=PASSES)
        self.autocast: Any = contextlib.nullcontext
        if dtype is not None:
            self.autocast = lambda: torch.autocast(DEVICE, dtype)
        self.scaler = torch.amp.GradScaler(DEVICE, init_scale=1024.0, enabled=dtype == torch.float16)
        self.norms: list[torch.Tensor] = []

    def step(self, number: int) -> None:
        for part, (inputs, targets) in enumerate(parts(number)):
            local = isinstance(self.forward, DistributedDataParallel) and part < PASSES - 1
            with self.forward.no_sync() if local else contextlib.nullcontext():  # type: ignore[attr-defined]
                with self.autocast():
                    loss = nn.functional.mse_loss(self.forward(inputs), targets) / PASSES
                if number == 2 and hvd.rank() == 0 and self.scaler.is_enabled():
                    loss = loss * float("inf")
                self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        self.norms.append(nn.utils.clip_grad_norm_(self.model.parameters(), 0.05))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()


def bits(loop: Loop) -> bytes:
    state = [
        loop.model.state_dict(),
        loop.optimizer.state_dict()["state"],
        loop.norms,
        loop.scaler.get_scale(),
    ]
    flat: list[torch.Tensor] = []

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            for each in value:
                collect(each)
        else:
            flat.append(torch.as_tensor(value).detach().cpu().double().flatten())

    collect(state)
    return torch.cat(flat).numpy().tobytes()


def compare(dtype: torch.dtype | None) -> None:
    if hvd.size() == 1:
        return
    theirs, ours = Loop("DDP", dtype), Loop("ours", dtype)
    start = copy.deepcopy(ours.model.state_dict())
    for number in range(5):
        theirs.step(number)
        ours.step(number)
        if hvd.size() == 2:  # with more ranks the backends may add in another order
            assert bits(ours) == bits(theirs), f"step {number}"
    assert len(set(hvd.allgather_object(bits(ours)))) == 1
    assert any(not torch.equal(start[name], value) for name, value in ours.model.state_dict().items())


def case_clipping_and_accumulation() -> None:
    compare(None)


def case_bfloat16() -> None:
    compare(torch.bfloat16)


def case_float16_and_a_gradient_scaler() -> None:
    compare(torch.float16)


if __name__ == "__main__":
    run(globals())
