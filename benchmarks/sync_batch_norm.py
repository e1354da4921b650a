"""Measures what SyncBatchNorm's exchanges cost: two ranks on this machine, CPU.

    python benchmarks/sync_batch_norm.py [--rounds 9] [--quick]

A model of 16 layers, forward and backward, once with `SyncBatchNorm` and once with `BatchNorm1d`. The inputs are small,
so that the exchanges take most of the time. Both take turns in the same two processes. Prints a Markdown table of the
time per layer and step. To compare two versions of cloudtrain, run it in both, in turns.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from _common import Timing
from _ranks import start_ranks, take_turns
from torch import nn

import cloudtrain.distributed.torch as hvd

LAYERS = 16
CHANNELS = 64
STEPS_A_TURN = 20


def main() -> None:
    rounds = start_ranks(__doc__)
    layers = {"SyncBatchNorm": hvd.SyncBatchNorm, "BatchNorm1d": nn.BatchNorm1d}
    steps = {
        name: _step(nn.Sequential(*(kind(CHANNELS) for _ in range(LAYERS)))) for name, kind in layers.items()
    }
    seconds = take_turns(steps, STEPS_A_TURN, rounds)
    if hvd.rank() == 0:
        print("| layer | per layer and step, median (min to max) |")
        print("| --- | --- |")
        for name, took in seconds.items():
            print(f"| {name} | {Timing.of([each / LAYERS for each in took])} |", flush=True)


def _step(model: nn.Module) -> Callable[[], None]:
    inputs = torch.randn(8, CHANNELS)

    def step() -> None:
        model(inputs).sum().backward()

    return step


if __name__ == "__main__":
    main()
