"""A small model, its data, and its training in one process as the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from _cases import seeded
from torch import Tensor, nn

import cloudtrain.distributed.torch as hvd

Optimizer = torch.optim.Optimizer
MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]

BATCH = 6
"""Rows of one rank."""


def make_model(width: int = 8, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """The same on every call, in double precision, so that results agree with one process to the last digits."""
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 3)
    ).to(dtype)


def make_sgd(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def batches(steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of all ranks together."""
    generator = seeded(9)
    for _ in range(steps):
        rows = BATCH * hvd.size()
        yield (
            torch.randn(rows, 4, generator=generator, dtype=torch.float64),
            torch.randn(rows, 3, generator=generator, dtype=torch.float64),
        )


def mine(joined: Tensor, rank: int | None = None) -> Tensor:
    """The part of such a batch that a rank has; by default this one."""
    return joined[BATCH * (hvd.rank() if rank is None else rank) :][:BATCH]


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.mse_loss(model(inputs), targets)


def train_alone(make_optimizer: MakeOptimizer, steps: int = 6, clip: float | None = None) -> Tensor:
    """The weights after training on all ranks' batches in this process only."""
    model = make_model()
    optimizer = make_optimizer(model.parameters())
    for inputs, targets in batches(steps):
        optimizer.zero_grad()
        loss_of(model, inputs, targets).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return weights(model)


def weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(p.double() for p in model.parameters()).detach()


def check(model: nn.Module, wanted: Tensor | None = None) -> None:
    """Check that weights have the same bits on all ranks and equal ``wanted`` up to rounding."""
    own = weights(model)
    rows = hvd.allgather(own[None])
    assert bool((rows == rows[0]).all()), "weights differ between ranks"
    if wanted is not None:
        torch.testing.assert_close(own, wanted, rtol=1e-9, atol=1e-10)
