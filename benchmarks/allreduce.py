"""Compares the bandwidth of allreduce on float32 arrays with other libraries: two ranks on this machine, CPU.

    python benchmarks/allreduce.py [--rounds 9] [--quick]

Measures cloudtrain's, negotiated by name and with ``same_order()`` as the optimizer uses it, against plain
``torch.distributed`` (Gloo), mpi4py (Open MPI), Horovod, and a copy of the array in memory, which is a bound for an
allreduce of two ranks. mpi4py and Horovod take part if ``scripts/build_horovod`` has built them. The contestants take
turns in the same two processes. Prints a Markdown table; GB/s are bytes of the array per second of one allreduce.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from _common import Timing
from _ranks import has_horovod, start_ranks, take_turns

import cloudtrain.distributed.torch as hvd

SIZES = {"4 KB": 4 << 10, "1 MB": 1 << 20, "25 MB": 25 << 20, "100 MB": 100 << 20}
BYTES_A_TURN = 400 << 20
MOST_CALLS_A_TURN = 200
BY_NAME, IN_ORDER = "cloudtrain, by name", "cloudtrain, same_order"


def main() -> None:
    rounds = start_ranks(__doc__)
    if hvd.rank() == 0:
        print("| array | who | median (min to max) | GB/s | its time / by name | its time / same_order |")
        print("| --- | --- | --- | --- | --- | --- |")
    for what, size in SIZES.items():
        calls = max(3, min(MOST_CALLS_A_TURN, BYTES_A_TURN // size))
        seconds = take_turns(contestants(torch.zeros(size // 4)), calls, rounds)
        if hvd.rank() == 0:
            print_rows(what, size, {who: Timing.of(took) for who, took in seconds.items()})


def contestants(array: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Ways to sum ``array`` over the ranks in place. It is and stays all zeros."""

    def in_order() -> None:
        with hvd.same_order():
            hvd.allreduce_(array, op=hvd.Sum)

    found: dict[str, Callable[[], object]] = {
        BY_NAME: lambda: hvd.allreduce_(array, name="array", op=hvd.Sum),
        IN_ORDER: in_order,
        "torch.distributed": lambda: dist.all_reduce(array),
    }
    if has_horovod():
        import horovod.torch as horovod
        from mpi4py import MPI

        view = array.numpy()
        found["mpi4py"] = lambda: MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, view)
        found["Horovod"] = lambda: horovod.allreduce_(array, name="array", op=horovod.Sum)
    other = torch.empty_like(array)
    found["memory copy"] = lambda: other.copy_(array)
    return found


def print_rows(what: str, size: int, timings: dict[str, Timing]) -> None:
    for who, timing in timings.items():
        ratios = [f"{timing.median / timings[ours].median:.2f}" for ours in (BY_NAME, IN_ORDER)]
        speed = f"{size / timing.median / 1e9:.3g}"
        print("|", " | ".join([what, who, str(timing), speed, *ratios]), "|", flush=True)


if __name__ == "__main__":
    main()
