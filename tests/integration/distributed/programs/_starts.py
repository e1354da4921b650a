"""Starts and leaves in the way that the first argument names; prints what came of it."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

import cloudtrain.distributed.torch as hvd
from cloudtrain.errors import CloudtrainError


def main(way: str) -> None:
    start = 5 if way == "alone" else 60
    try:
        {"again": again, "own group": own_group}.get(way, lambda: hvd.init(start_timeout=start))()
    except CloudtrainError as error:
        print(f"{type(error).__name__}: {error}")
        sys.exit(3)
    numbers = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]
    total = hvd.allreduce(torch.tensor(hvd.rank()), op=hvd.Sum).item()
    hvd.shutdown()
    shown = [*numbers, total, hvd.is_initialized(), dist.is_initialized()]
    # One write, so that lines of ranks that share a pipe stay whole.
    sys.stdout.write(" ".join(map(str, shown)) + "\n")
    if way == "own group":
        dist.destroy_process_group()


def again() -> None:
    for _ in range(3):
        hvd.init()
        hvd.init()
        hvd.barrier()
        hvd.shutdown()
    hvd.init()


def own_group() -> None:
    dist.init_process_group("gloo")
    hvd.init()


if __name__ == "__main__":
    main(sys.argv[1])
