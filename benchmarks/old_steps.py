"""Saving to a folder in which a training has left many old steps: the time of one save.

    python benchmarks/old_steps.py [--steps 20000]

A small state is saved synchronously. The folder has three checkpoints, or also many empty folders, which an earlier
version left, or many checkpoints that are all kept. Prints a Markdown table: the first save of a process, which also
cleans up, and the median of the ten saves from the 26th on. Runs with an earlier version, too: set PYTHONPATH to a
checkout of it.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from cloudtrain.checkpoint import Checkpointer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    steps = parser.parse_args().steps
    print("| old steps | first save | then |\n| --- | --- | --- |")
    for what, count, keep in (
        ("3", 3, 3),
        (f"{steps:,} empty folders", steps, 3),
        (f"{steps:,} kept", steps, None),
    ):
        with tempfile.TemporaryDirectory() as name:
            fill(Path(name), count, keep)
            first, *others = saves(Path(name), count + 10, keep)
            print(
                f"| {what} | {1000 * first:.0f} ms | {1000 * statistics.median(others[24:]):.0f} ms |",
                flush=True,
            )


def fill(folder: Path, count: int, keep: int | None) -> None:
    with Checkpointer(folder, asynchronous=False, keep=None) as checkpointer:
        for step in range(1, 4):
            checkpointer.save(step, state(step))
    [one] = folder.glob("step-000000000001")
    for step in range(4, count + 1):
        other = folder / f"step-{step:012d}"
        if keep is None:
            shutil.copytree(one, other)
        else:
            (other / "save").mkdir(parents=True)


def saves(folder: Path, first: int, keep: int | None) -> list[float]:
    """The seconds of each of a process's first saves."""
    found = []
    with Checkpointer(folder, asynchronous=False, keep=keep) as checkpointer:
        for step in range(first, first + 35):
            began = time.perf_counter()
            checkpointer.save(step, state(step))
            found.append(time.perf_counter() - began)
    return found


def state(step: int) -> dict[str, np.ndarray]:
    return {"weights": np.full(1000, step, dtype=np.float32)}


if __name__ == "__main__":
    main()
