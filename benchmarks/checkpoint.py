"""Checkpoints: a state of 1 GiB saved to S3 and restored, and saves to a folder with many old steps.

    python benchmarks/checkpoint.py [s3] [memory] [old_steps] [--runs 3] [--steps 20000] [--quick] [--json]

- ``s3``: 256 tensors of 4 MiB, on a real S3 server on this machine, with which they share the cores. How long training
  is stalled, and when the state is durable. Each turn has a separate process and an empty server, and saves twice: the
  first save sets up buffers and connections, the second is typical of a training. Stalls are compared with a plain copy
  of the tensors into an existing buffer in the same process. The extra memory is the peak of resident memory (VmHWM of
  proc(5)) above that before the first save; of a restore, in addition to the model.
- ``memory``: the same state, with and without copies in memory that outlives the process. How long training is stalled
  by a save, by a save to memory only, and how long a restore from each takes.
- ``old_steps``: a synchronous save of a small state to a folder that has three checkpoints, or also many empty folders,
  which an earlier version left and saves remove, a thousand at a time, or many checkpoints that are all kept. The first
  save of a process also cleans up; "then" are the ten saves from the 26th on.

Contestants take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _checkpoint_contestants import CONTESTANTS, TENSOR_BYTES
from _common import OURS, REPOSITORY, Report, run_parts
from _peers import peer

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.testing import S3Server

BUCKET = "checkpoints"
Figures = dict[str, Any]
PICKS: dict[str, tuple[str, Callable[[Figures], float]]] = {
    "stall, first save": ("s", lambda run: run["stall"][0]),
    "stall, second save": ("s", lambda run: run["stall"][1]),
    "stall, second save, in plain copies": ("copies", lambda run: run["stall"][1] / run["copy"]),
    "durable, second save": ("s", lambda run: run["durable"][1]),
    "CPU, second save": ("s", lambda run: run["cpu"][1]),
    "extra memory of saves": ("B", lambda run: run["memory"]),
    "restore": ("s", lambda run: run["restore"]),
    "CPU of the restore": ("s", lambda run: run["restore_cpu"]),
    "extra memory of the restore": ("B", lambda run: run["restore_memory"]),
}
"""By figure: its unit, and how it follows from those of a turn."""


def s3(report: Report, given: argparse.Namespace) -> None:
    size = 16 << 20 if given.quick else 1 << 30
    contestants, python = [*CONTESTANTS][:1], Path(sys.executable)
    with report.optional("torch.save, safetensors, DCP"):
        contestants, python = [*CONTESTANTS], peer("checkpoints")
    runs: dict[str, list[Figures]] = {name: [] for name in contestants}
    for _ in range(given.runs):
        for name, found in runs.items():
            found.append(turn(name, size // TENSOR_BYTES, python))
            print(name, json.dumps(found[-1]), file=sys.stderr)  # a full run takes minutes
    state = f"checkpoint of {size >> 20} MiB"
    for what, (unit, pick) in PICKS.items():
        for name, turns in runs.items():
            report.add(f"{state}: {what}", name, map(pick, turns), unit)


def turn(name: str, tensors: int, python: Path) -> Figures:
    """The measurements of one contestant's saves and restore."""
    with S3Server() as server:
        server.create_bucket(BUCKET)
        environment = {
            **os.environ,
            **server.env,
            # the only name that s3torchconnector supports
            "AWS_ENDPOINT_URL": server.env["AWS_ENDPOINT_URL_S3"],
            "PYTHONPATH": str(REPOSITORY),
            # makes the C library return freed memory, so that resident memory is memory in use
            "MALLOC_MMAP_THRESHOLD_": str(1 << 16),
        }
        figures: Figures = {}
        for do in ("save", "restore"):
            program = str(Path(__file__).with_name("_checkpoint_contestants.py"))
            command = [str(python), "-W", "ignore", program]
            output = subprocess.check_output(
                [*command, do, name, f"s3://{BUCKET}/run", str(tensors)], env=environment, text=True
            )
            figures |= json.loads(output)
    os.sync()  # pending writes must not slow down the next turn
    return figures


def memory(report: Report, given: argparse.Namespace) -> None:
    tensors = 4 if given.quick else (1 << 30) // TENSOR_BYTES
    runs = []
    for _ in range(given.runs):
        with S3Server() as server, tempfile.TemporaryDirectory() as base:
            server.create_bucket(BUCKET)
            program = str(Path(__file__).with_name("_checkpoint_in_memory.py"))
            environment = {**os.environ, **server.env, "PYTHONPATH": str(REPOSITORY)}
            command = [sys.executable, program, f"s3://{BUCKET}", str(tensors), base]
            runs.append(json.loads(subprocess.check_output(command, env=environment, text=True)))
        print(json.dumps(runs[-1]), file=sys.stderr)
    state = f"checkpoint of {tensors * TENSOR_BYTES >> 20} MiB, copies in memory"
    for what in runs[0]:
        report.add(f"{state}: {what}", OURS, [run[what] for run in runs])
    for what in ("save", "save to memory"):
        copies = [run[f"{what}: stall"] / run["plain copy"] for run in runs]
        report.add(f"{state}: {what}: stall, in plain copies", OURS, copies, "copies")


def old_steps(report: Report, given: argparse.Namespace) -> None:
    steps = 100 if given.quick else given.steps
    for what, count, keep in (
        ("3", 3, 3),
        (f"{steps:,} empty folders of", steps, 3),
        (f"{steps:,} kept", steps, None),
    ):
        with tempfile.TemporaryDirectory() as name:
            fill(Path(name), count, keep)
            first, *others = saves(Path(name), count + 10, keep)
        report.add(f"save with {what} old steps: first", OURS, first)
        report.add(f"save with {what} old steps: then", OURS, others[24:])


def fill(folder: Path, count: int, keep: int | None) -> None:
    with Checkpointer(folder, asynchronous=False, keep=None) as checkpointer:
        for step in range(1, 4):
            checkpointer.save(step, small_state(step))
    [one] = folder.glob("step-000000000001")
    for step in range(4, count + 1):
        other = folder / f"step-{step:012d}"
        if keep is None:
            shutil.copytree(one, other)
        else:
            (other / "save").mkdir(parents=True)


def saves(folder: Path, first: int, keep: int | None) -> list[float]:
    """The seconds of each of the first saves of a process."""
    found = []
    with Checkpointer(folder, asynchronous=False, keep=keep) as checkpointer:
        for step in range(first, first + 35):
            began = time.perf_counter()
            checkpointer.save(step, small_state(step))
            found.append(time.perf_counter() - began)
    return found


def small_state(step: int) -> dict[str, np.ndarray]:
    return {"weights": np.full(1000, step, dtype=np.float32)}


if __name__ == "__main__":
    run_parts(
        __doc__, {"s3": s3, "memory": memory, "old_steps": old_steps}, runs=3, options=(("--steps", 20_000),)
    )
