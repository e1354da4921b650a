"""Measures the latency of small collectives: two ranks on this machine, CPU.

    python benchmarks/small_messages.py [--rounds 9] [--quick]

An allreduce of 16 floats waits for the negotiation and for nothing else. ``broadcast_object`` and ``allgather_object``
also pickle and authenticate. The rows take turns in the same two processes. Prints a Markdown table. To compare two
versions of cloudtrain, run it in both, in turns.
"""

from __future__ import annotations

import torch
from _common import Timing
from _ranks import start_ranks, take_turns

import cloudtrain.distributed.torch as hvd

CALLS_A_TURN = 300
LARGE_CALLS_A_TURN = 10
LARGE_BYTES = 16 << 20


def main() -> None:
    rounds = start_ranks(__doc__)
    floats, settings, large = torch.zeros(16), {"lr": 0.1, "epoch": 3, "name": "run"}, bytes(LARGE_BYTES)
    small = {
        "allreduce of 16 floats": lambda: hvd.allreduce_(floats, name="floats", op=hvd.Sum),
        "broadcast_object of a small dict": lambda: hvd.broadcast_object(settings, name="settings"),
        "allgather_object of a small dict": lambda: hvd.allgather_object(settings, name="settings"),
    }
    seconds = take_turns(small, CALLS_A_TURN, rounds)
    big = {f"broadcast_object of {LARGE_BYTES >> 20} MiB": lambda: hvd.broadcast_object(large, name="large")}
    seconds.update(take_turns(big, LARGE_CALLS_A_TURN, rounds))
    if hvd.rank() == 0:
        print("| collective | median (min to max) |")
        print("| --- | --- |")
        for what, took in seconds.items():
            print(f"| {what} | {Timing.of(took)} |", flush=True)


if __name__ == "__main__":
    main()
