"""Allreduce of float32 arrays on two ranks of this machine, CPU: bandwidth against the peers.

    python benchmarks/allreduce.py [--rounds 9] [--quick]

Ours against bare ``torch.distributed`` (Gloo), mpi4py (Open MPI), Horovod where it is built
(``scripts/build_horovod``), and a copy of the array within memory, which no allreduce can beat. The contestants
take turns in the same two processes. Prints rows of a Markdown table with the seconds for one allreduce.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import _common

RANKS = 2
SIZES = {"4 KB": 4 << 10, "1 MB": 1 << 20, "25 MB": 25 << 20, "100 MB": 100 << 20}
BYTES_A_TURN = 200 << 20
MOST_A_TURN = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="two rounds, to see that it runs")
    arguments = parser.parse_args()
    rounds = 2 if arguments.quick else arguments.rounds
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        contest(rounds)
        return
    command = [*_common.mpirun(RANKS), *_common.horovod_or_this_python(), __file__, "--rounds", str(rounds)]
    sys.exit(subprocess.run(command, env=_common.mpi_environment()).returncode)


def contest(rounds: int) -> None:
    import torch

    import cloudtrain.distributed.torch as hvd

    torch.set_num_threads(1)
    hvd.init()
    if hvd.rank() == 0:
        print(_common.header(), flush=True)
    for what, size in SIZES.items():
        calls = max(3, min(MOST_A_TURN, BYTES_A_TURN // size))
        array = torch.zeros(size // 4)
        contestants = contestants_for(array)
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        names = list(contestants)
        for turn in range(rounds + 1):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                hvd.barrier()
                start = time.perf_counter()
                for _ in range(calls):
                    contestants[name]()
                if turn:
                    seconds[name].append((time.perf_counter() - start) / calls)
        if hvd.rank() == 0:
            timings = {name: _common.Timing.of(each) for name, each in seconds.items()}
            for peer in names[1:]:
                print(_common.row(f"allreduce of {what}", timings["ours"], peer, timings[peer], unit=1e6), flush=True)
    hvd.shutdown()


def contestants_for(array: object) -> dict[str, Callable[[], object]]:
    import torch
    import torch.distributed as dist

    import cloudtrain.distributed.torch as hvd

    assert isinstance(array, torch.Tensor)
    other = torch.empty_like(array)
    found: dict[str, Callable[[], object]] = {
        "ours": lambda: hvd.allreduce_(array, name="array", op=hvd.Sum),
        "torch.distributed": lambda: dist.all_reduce(array),
    }
    if find_spec("mpi4py"):
        from mpi4py import MPI

        view = array.numpy()
        found["mpi4py"] = lambda: MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, view)
    if find_spec("horovod"):
        import horovod.torch as horovod

        horovod.init()
        found["Horovod"] = lambda: horovod.allreduce_(array, name="array", op=horovod.Sum)
    found["memory copy"] = lambda: other.copy_(array)
    return found


if __name__ == "__main__":
    main()
