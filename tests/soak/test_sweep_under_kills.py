"""A sweep of 200 trials, 8 at a time, whose controller and trials are killed at random."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cloudtrain.index import list_jobs
from cloudtrain.sweep.plan import make_plan
from cloudtrain.sweep.start import create
from cloudtrain.sweep.trials import COMPLETED, FAILED

TRIALS, PARALLEL, KILL_EVERY = 200, 8, 6.0
SCRIPT = """
import argparse, os, random, time
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
rate = parser.parse_args().rate
descriptor = os.open(os.environ["RUNS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
trial = os.environ["CLOUDTRAIN_TRIAL"]
os.write(descriptor, f"begin {trial} {os.getpid()}\\n".encode())
time.sleep(random.uniform(3, 12))
print(f"loss={abs(rate - 0.3)}", flush=True)
os.write(descriptor, f"end {trial} {os.getpid()}\\n".encode())
"""


@pytest.mark.timeout(3000)
def test_nothing_is_lost_and_nothing_runs_twice(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    runs = tmp_path / "runs"
    runs.touch()
    started = create(
        {
            "entry_point": str(tmp_path / "train.py"),
            "platform": "local",
            "environment": {"RUNS": str(runs)},
            "metric_definitions": [{"Name": "loss", "Regex": "loss=([0-9.e+-]+)"}],
            "samples": False,
        },
        make_plan("soak", {"rate": "0.0..1.0"}, "loss", trials=TRIALS, parallel=PARALLEL, seed=1),
    )
    source, killed, controllers = random.Random(1), set[str](), 0
    program = [sys.executable, str(Path(__file__).parents[1] / "integration/sweep/controlled.py"), "soak"]
    deadline = time.monotonic() + 2800
    while started.trials.finished is None:
        assert time.monotonic() < deadline
        controllers += 1
        with subprocess.Popen(program) as controller:
            for _ in range(source.randint(1, 8)):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    controller.wait(source.uniform(0.2, KILL_EVERY))
                    break
                if source.random() < 0.3:
                    killed |= kill_a_trial(runs, source)
                assert len(started.trials.open) <= PARALLEL, "more trials at a time than allowed"
            controller.kill()
    trials = started.trials
    lines = [line.split() for line in runs.read_text().splitlines()]
    begun = sorted(int(trial) for what, trial, _ in lines if what == "begin")
    assert begun == [*range(TRIALS)], "a trial was lost, or ran twice"
    assert [trial.number for trial in trials.all] == [*range(TRIALS)]
    assert {str(trial.number) for trial in trials.all if trial.status == FAILED} == killed
    assert {trial.status for trial in trials.all} <= {COMPLETED, FAILED}
    assert len({entry.name for entry in list_jobs()}) == TRIALS
    assert most_at_a_time(lines) <= PARALLEL
    print(
        f"{controllers} controllers, {len(killed)} killed trials, {most_at_a_time(lines)} at a time at most"
    )
    assert controllers > 10
    assert most_at_a_time(lines) > PARALLEL // 2, "too few at a time to show anything"
    assert killed


def kill_a_trial(runs: Path, source: random.Random) -> set[str]:
    """Kill the process of a trial that runs. Returns its number, unless it has just ended."""
    lines = [line.split() for line in runs.read_text().splitlines()]
    over = {trial for what, trial, _ in lines if what != "begin"}
    running = [
        (trial, int(process)) for what, trial, process in lines if what == "begin" and trial not in over
    ]
    if not running:
        return set()
    trial, process = source.choice(running)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGSTOP)  # it can no longer end by itself
        is_over = any(line.split()[:2] == ["end", trial] for line in runs.read_text().splitlines())
        os.kill(process, signal.SIGKILL)
        if not is_over:
            with open(runs, "a") as file:
                file.write(f"killed {trial} {process}\n")
        return set() if is_over else {trial}
    return set()


def most_at_a_time(lines: list[list[str]]) -> int:
    running, most = 0, 0
    for what, _, _ in lines:
        running += 1 if what == "begin" else -1
        most = max(most, running)
    return most
