"""Measures what the reduction of gradients costs the thread of the backward pass for one parameter: two ranks, CPU.

    python benchmarks/hook_cost.py [--rounds 7] [--quick]

The model has many parameters of 8 numbers, so the hooks take longer than the copies. The time is CPU time of the
thread that calls ``backward``, above that of the same model without a reduction; on a busy machine, too, it does not
count what others do. Contestants take turns in the same two processes. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch
from _ranks import is_rank, run_in_ranks
from torch import Tensor, nn

import cloudtrain.distributed.torch as hvd

STEPS = 20


class Product(nn.Module):
    def __init__(self, parameters: int) -> None:
        super().__init__()
        self.factors = nn.ParameterList([nn.Parameter(torch.ones(8)) for _ in range(parameters)])

    def forward(self, values: Tensor) -> Tensor:
        for factor in self.factors:
            values = values * factor
        return values.sum()


def contestants(parameters: int) -> dict[str, Callable[[], float]]:
    """Each makes one step, and returns the seconds of its backward pass and of its wait for the reduction."""
    plain, ours, theirs = (Product(parameters) for _ in range(3))
    wrapped = nn.parallel.DistributedDataParallel(theirs, gradient_as_bucket_view=True)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(ours.parameters(), lr=0.0), named_parameters=ours.named_parameters()
    )

    def step(model: nn.Module, after: Callable[[], object]) -> float:
        model.zero_grad()
        loss = model(torch.ones(8))
        began = time.thread_time()
        loss.backward()
        after()
        return time.thread_time() - began

    return {
        "plain": lambda: step(plain, lambda: None),
        "cloudtrain": lambda: step(ours, optimizer.synchronize),
        "DDP": lambda: step(wrapped, lambda: None),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="two rounds, as a smoke test")
    arguments = parser.parse_args()
    rounds = 2 if arguments.quick else arguments.rounds
    if not is_rank():
        sys.exit(run_in_ranks("--rounds", str(rounds)))
    torch.set_num_threads(1)
    hvd.init()
    torch.distributed.barrier()
    if hvd.rank() == 0:
        print("| parameters | who | CPU for each, median (min to max) | its CPU / cloudtrain's |")
        print("| --- | --- | --- | --- |")
    for parameters in (100, 400):
        turns = contestants(parameters)
        seconds: dict[str, list[float]] = {name: [] for name in turns}
        for turn in range(rounds + 1):
            for name, step in turns.items():
                took = statistics.median(step() for _ in range(STEPS))
                if turn:
                    seconds[name].append(took)
        costs = {
            name: [
                (own - plain) / parameters for own, plain in zip(seconds[name], seconds["plain"], strict=True)
            ]
            for name in ("cloudtrain", "DDP")
        }
        if hvd.rank() == 0:
            ours = statistics.median(costs["cloudtrain"])
            for name, each in costs.items():
                ratio = statistics.median(each) / ours
                micro = [value * 1e6 for value in (statistics.median(each), min(each), max(each))]
                print(
                    f"| {parameters} | {name} | {micro[0]:.1f} us ({micro[1]:.1f} to {micro[2]:.1f}) | {ratio:.2f} |"
                )


if __name__ == "__main__":
    main()
