"""The last rank leaves in the middle of the job, by the way that the first argument names."""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
from torch import nn

import cloudtrain.distributed.torch as hvd


def main(way: str) -> None:
    torch.set_num_threads(1)
    hvd.init(start_timeout=60, timeout=4)
    last = hvd.rank() == hvd.size() - 1
    hvd.allreduce(torch.ones(3), name="warm-up")
    if way == "killed":
        if last:
            hvd.allreduce_async(torch.ones(1 << 22), name="large")
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.allreduce(torch.ones(1 << 22), name="large")
    elif way == "hangs":
        time.sleep(12 if last else 0)
        hvd.allreduce(torch.ones(3), name="awaited")
    elif way == "exits in training":
        model = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 10))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
        )
        for step in range(3):
            if last and step == 1:
                os._exit(7)
            optimizer.zero_grad()
            model(torch.ones(2, 10)).sum().backward()
            optimizer.step()


if __name__ == "__main__":
    main(sys.argv[1])
