"""Measures what logging metrics costs a training step: ``cloudtrain.log()``, other trackers, a plain append to a file.

    python benchmarks/log_metrics.py [logging] [thread] [--runs 5] [--steps 500] [--quick] [--json]

``logging``: the contestants run in turns, each in a separate process. First, it logs one value 200 times. Then follow
steps of 10 ms of work in Python, each of which logs 100 values: 10,000 values a second. Prints rows of a Markdown
table: a call with one value; of a step the CPU time, with that of all threads of the process, the median and the 99th
percentile. Steps that log nothing take part, too. On a machine with other load, only the CPU time means something.

``thread``: the CPU time that the training's thread takes for 10,000 values a second in calls of 1, 10 and 100 values,
as a share of a step of 10 ms, and that of calls that do nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _common import OURS, REPOSITORY, PeerMissing, Report, run_parts
from _log_contestant import CONTESTANTS, work
from _peers import MLFLOW, TENSORBOARD, TRACKIO, WANDB, peer

STEP_SECONDS = 0.01
NO_LOG = "no log"
CALL, STEP = "log() of one value", "step of 10 ms that logs 100 values"
CPU, WORST = f"{STEP}: CPU", f"{STEP}, 99th percentile"
PEERS = {"TensorBoard": TENSORBOARD, "wandb offline": WANDB, "trackio": TRACKIO, "MLflow, file store": MLFLOW}


def logging(report: Report, given: argparse.Namespace) -> None:
    found: dict[str, list[tuple[float, ...]]] = {}
    pythons: dict[str, Path] = {}
    for who in CONTESTANTS:
        with report.optional(who):
            pythons[who] = peer(PEERS[who]) if who in PEERS else Path(sys.executable)
    amount, steps = _amount(), 50 if given.quick else given.steps
    for _ in range(given.runs):
        for who, python in pythons.items():
            with report.optional(who):
                times = _run(python, who, amount, steps)
                taken = sorted(times["steps"])
                row = times["call"], times["cpu"], statistics.median(taken), taken[int(0.99 * len(taken))]
                found.setdefault(who, []).append(row)
    order = [OURS, *(who for who, runs in found.items() if runs and who != OURS)]
    for place, what in enumerate((CALL, CPU, STEP, WORST)):
        for who in order:
            if (what, who) != (CALL, NO_LOG):
                report.add(what, who, [each[place] for each in found[who]])


def _amount() -> int:
    """The amount of work that takes `STEP_SECONDS`."""
    began = time.thread_time()
    work(1_000_000)
    return round(1_000_000 * STEP_SECONDS / (time.thread_time() - began))


def thread(report: Report, given: argparse.Namespace) -> None:
    amount, steps = _amount(), 50 if given.quick else given.steps
    for values in (1, 10, 100):
        runs = [
            (who, _run(Path(sys.executable), who, amount, steps, values))
            for _ in range(given.runs)
            for who in (OURS, NO_LOG)
        ]
        for who in (OURS, NO_LOG):
            shares = [100 * times["own"] / STEP_SECONDS for each, times in runs if each == who]
            report.add(f"10,000 values a second, {values} in a call: thread", who, shares, "% of a step")


def _run(python: Path, who: str, amount: int, steps: int, values: int = 100) -> dict[str, Any]:
    """The output of a contestant's script."""
    script = Path(__file__).with_name("_log_contestant.py")
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)} if who == OURS else dict(os.environ)
    command = [str(python), str(script), who, str(amount), str(steps), str(values)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    if done.returncode:
        raise PeerMissing(f"it fails: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


PARTS: dict[str, Callable[[Report, argparse.Namespace], None]] = {"logging": logging, "thread": thread}

if __name__ == "__main__":
    run_parts(__doc__, PARTS, runs=5, options=(("--steps", 500),))
