"""Saving a state of 1 GiB to S3 and restoring it: how long training is stalled, and when the state is durable.

    python benchmarks/checkpoint.py [--runs 3] [--quick]

256 tensors of 4 MiB, on a real S3 server on this machine, with which they share the cores. Contestants take turns;
each turn has a separate process and an empty server, and saves twice: the first save sets up buffers and connections,
the second is typical of a training. Stalls are compared with a plain copy of the tensors into an existing buffer in the
same process. The extra memory is the peak of resident memory (VmHWM of proc(5)) above that before the first save.
Prints a Markdown table: medians, with the range of the runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _peers
from _checkpoint_contestants import CONTESTANTS, TENSOR_BYTES
from _common import Timing

from cloudtrain.testing import S3Server

BUCKET = "checkpoints"
Figures = dict[str, Any]


def turn(name: str, tensors: int) -> Figures:
    """The measurements of one contestant's saves and restore."""
    with S3Server() as server:
        server.create_bucket(BUCKET)
        environment = {
            **os.environ,
            **server.env,
            # the only name that s3torchconnector supports
            "AWS_ENDPOINT_URL": server.env["AWS_ENDPOINT_URL_S3"],
            "PYTHONPATH": str(_peers.REPOSITORY),
            # makes the C library return freed memory, so that resident memory is memory in use
            "MALLOC_MMAP_THRESHOLD_": str(1 << 16),
        }
        figures: Figures = {}
        for do in ("save", "restore"):
            program = str(Path(__file__).with_name("_checkpoint_contestants.py"))
            command = [str(_peers.checkpoints()), "-W", "ignore", program]
            output = subprocess.check_output(
                [*command, do, name, f"s3://{BUCKET}/run", str(tensors)], env=environment, text=True
            )
            figures |= json.loads(output)
    os.sync()  # pending writes must not slow down the next turn
    return figures


def seconds(runs: list[Figures], pick: Callable[[Figures], float]) -> str:
    return str(Timing.of(map(pick, runs)))


def mebibytes(runs: list[Figures], what: str) -> str:
    return f"{Timing.of(run[what] for run in runs).median / 2**20:.0f} MiB"


def print_table(runs: dict[str, list[Figures]]) -> None:
    print(
        "| who | stall, first save | stall, second | in plain copies | durable, second | CPU | extra memory |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, turns in runs.items():
        copies = Timing.of(run["stall"][1] / run["copy"] for run in turns).median
        cells = [
            name,
            seconds(turns, lambda run: run["stall"][0]),
            seconds(turns, lambda run: run["stall"][1]),
            f"{copies:.2f}",
            seconds(turns, lambda run: run["durable"][1]),
            seconds(turns, lambda run: run["cpu"][1]),
            mebibytes(turns, "memory"),
        ]
        print("|", " | ".join(cells), "|")
    copy = Timing.of(run["copy"] for turns in runs.values() for run in turns)
    print(f"| plain copy | | {copy} | 1.00 | | | |")
    print("\n| who | restore | CPU | extra memory, in addition to the model |")
    print("| --- | --- | --- | --- |")
    for name, turns in runs.items():
        restore = seconds(turns, lambda run: run["restore"])
        cpu = seconds(turns, lambda run: run["restore_cpu"])
        print(f"| {name} | {restore} | {cpu} | {mebibytes(turns, 'restore_memory')} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="64 MiB, once: to see that it works")
    arguments = parser.parse_args()
    size, count = (64 << 20, 1) if arguments.quick else (1 << 30, arguments.runs)
    runs: dict[str, list[Figures]] = {name: [] for name in CONTESTANTS}
    for _ in range(count):
        for name in CONTESTANTS:
            runs[name].append(turn(name, size // TENSOR_BYTES))
            print(name, json.dumps(runs[name][-1]), file=sys.stderr)  # a full run takes minutes
    print_table(runs)


if __name__ == "__main__":
    main()
