"""One rank fails in the way and at the place that the arguments select; the others continue."""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
from torch import nn

import cloudtrain.distributed.torch as hvd

WAYS = {
    "is killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exits": lambda: sys.exit(3),
    "raises": lambda: [].pop(),
    "stalls": lambda: time.sleep(600),
    "is stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "disagrees": lambda: None,
}


def main(way: str, place: str, rank: str) -> None:
    torch.set_num_threads(1)
    step_alone()
    hvd.init(start_timeout=240)
    fails = hvd.rank() == int(rank)
    hvd.allreduce(torch.ones(3), name="warm-up")
    {"small": small, "large": large, "training": training}[place](way, fails)


def step_alone() -> None:
    """Import what torch imports at the first step, because that may take longer than the timeouts used here."""
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    optimizer.zero_grad()
    weight.sum().backward()
    optimizer.step()


def small(way: str, fails: bool) -> None:
    if fails:
        WAYS[way]()
    hvd.allreduce(torch.ones(3 + fails), name="wanted")


def large(way: str, fails: bool) -> None:
    """The rank takes part in the negotiation, and possibly starts to send."""
    tensor = torch.ones(1 << 22)
    if fails:
        hvd.allreduce_async(tensor if way != "disagrees" else tensor[1:], name="wanted")
        WAYS[way]()
    hvd.allreduce(tensor if not fails else tensor[1:], name="wanted")


def training(way: str, fails: bool) -> None:
    model = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 10))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    for step in range(4):
        if fails and step == 2:
            WAYS[way]()
            if way == "disagrees":
                hvd.allreduce(torch.ones(1), name="something else")
        optimizer.zero_grad()
        model(torch.ones(2, 10)).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
