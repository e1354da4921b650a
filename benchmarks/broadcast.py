"""Measures how long ``broadcast_parameters`` takes: two ranks on this machine, CPU.

    python benchmarks/broadcast.py [--rounds 5] [--quick]

Against a ``broadcast`` for each tensor, all of them started before the first wait, and against the way in which
``DistributedDataParallel`` copies a model at its start. Contestants take turns in the same two processes. Prints a
Markdown table.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from _common import Timing
from _ranks import start_ranks, take_turns
from torch import Tensor

import cloudtrain.distributed.torch as hvd

CALLS_A_TURN = 3
MODELS = {"1,000 of 4 KB": (1000, 1000), "400 of 250 KB": (400, 62_500), "20 of 20 MB": (20, 5_000_000)}
"""The number of tensors, and the numbers in each."""
DDP_BUFFER_BYTES = 250 << 20


def one_by_one(tensors: list[Tensor]) -> None:
    for handle in [hvd.broadcast_async_(tensor, 0, str(n)) for n, tensor in enumerate(tensors)]:
        handle.wait()


def as_ddp(tensors: list[Tensor]) -> None:
    copy: Any = dist._broadcast_coalesced
    copy(dist.group.WORLD, tensors, DDP_BUFFER_BYTES, 0)


def main() -> None:
    rounds = start_ranks(__doc__)
    if hvd.rank() == 0:
        print("| tensors | how | median (min to max) |")
        print("| --- | --- | --- |")
    for model, (count, length) in MODELS.items():
        tensors = [torch.full((length,), float(hvd.rank())) for _ in range(count)]
        contestants = {
            "`broadcast_parameters`": lambda tensors=tensors: hvd.broadcast_parameters(tensors, 0),
            "a `broadcast` for each": lambda tensors=tensors: one_by_one(tensors),
            "as DDP": lambda tensors=tensors: as_ddp(tensors),
        }
        seconds = take_turns(contestants, CALLS_A_TURN, rounds)
        if hvd.rank() == 0:
            for how, took in seconds.items():
                print(f"| {model} | {how} | {Timing.of(took)} |", flush=True)


if __name__ == "__main__":
    main()
