"""Calls init and shutdown in the way that the first argument selects, and prints the result."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist

import cloudtrain.distributed.torch as hvd
from cloudtrain.errors import CloudtrainError


def main(way: str) -> None:
    start = 5 if way == "alone" else 60
    ways = {"again": again, "own group": own_group, "comm": comm, "part of comm": part_of_comm}
    try:
        ways.get(way, lambda: hvd.init(start_timeout=start))()
    except CloudtrainError as error:
        print(f"{type(error).__name__}: {error}")
        sys.exit(3)
    numbers = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]
    total = hvd.allreduce(torch.tensor(hvd.rank()), op=hvd.Sum).item()
    hvd.shutdown()
    shown = [*numbers, total, hvd.is_initialized(), dist.is_initialized()]
    # A single write, so that lines of ranks that share a pipe do not mix.
    sys.stdout.write(" ".join(map(str, shown)) + "\n")
    if way == "own group":
        dist.destroy_process_group()


def again() -> None:
    for _ in range(3):
        hvd.init()
        hvd.init()
        assert hvd.is_homogeneous()
        hvd.barrier()
        kept = hvd.allreduce_async(torch.ones(1), name="kept")
        kept.wait()
        hvd.shutdown()
        hvd.shutdown()
        try:
            hvd.allreduce(torch.ones(1))
        except ValueError as error:
            assert "has not been initialized" in str(error)
        else:
            raise AssertionError("a collective after shutdown")
    hvd.init()


def own_group() -> None:
    """With the script's own process group, which it uses before ``init``, until ``shutdown`` and after it."""
    dist.init_process_group("gloo")
    for _ in range(2):
        hvd.init()
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        assert tensor.item() == hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
        hvd.shutdown()
    hvd.init()


def comm() -> None:
    hvd.init(comm=list(range(int(os.environ.get("WORLD_SIZE", 1)))), start_timeout=60)


def part_of_comm() -> None:
    hvd.init(comm=[0], start_timeout=60)


if __name__ == "__main__":
    main(sys.argv[1])
