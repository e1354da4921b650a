"""A sweep of about 200 trials, 8 at a time, until its budget is spent. At random, its controller, its trials and its
storage are killed, and its disk is full.
"""

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
from weather_faults import Surroundings, fill_disk, take_storage_away
from weather_rounds import BUCKET, surroundings

from cloudtrain.index import list_jobs
from cloudtrain.storage import open_store
from cloudtrain.sweep import StartedSweep
from cloudtrain.sweep.plan import make_plan
from cloudtrain.sweep.start import create
from cloudtrain.sweep.trials import COMPLETED, FAILED, NO_BUDGET, STOPPED

MOST_TRIALS, PARALLEL, KILL_EVERY = 400, 8, 6.0
BUDGET = 2400.0
"""In EUR. A second of a job costs 1 EUR: they pay for about 200 trials."""
OVERSHOOT = 60.0
"""The most that a trial costs beyond its cap: the end of its job, on a loaded machine."""
SCRIPT = """
import argparse, os, random, signal, time
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: exit(1))  # at its cap
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
rate = parser.parse_args().rate
descriptor = os.open(os.environ["RUNS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
trial = os.environ["CLOUDTRAIN_TRIAL"]
os.write(descriptor, f"begin {trial} {os.getpid()}\\n".encode())
try:
    time.sleep(random.uniform(3, 12))
    Path(os.environ["SM_MODEL_DIR"], "model").write_text(trial)
    print(f"loss={abs(rate - 0.3)}", flush=True)
finally:
    os.write(descriptor, f"end {trial} {os.getpid()}\\n".encode())
"""


@pytest.mark.timeout(3000)
def test_nothing_is_lost_and_nothing_runs_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with surroundings(tmp_path, monkeypatch) as around:
        monkeypatch.delenv("PYTHONPATH")
        started = _start(around, monkeypatch)
        killed, faults = _run_under_faults(started, around)
        trials = started.trials
        lines = _lines(around)
        begun = sorted(int(trial) for what, trial, _ in lines if what == "begin")
        capped = {trial.number for trial in trials.all if trial.status == STOPPED}
        assert len(begun) == len({*begun}), "a trial ran twice"
        assert {*range(len(trials.all))} - {*begun} <= capped, "a trial was lost"
        assert [trial.number for trial in trials.all] == [*range(len(trials.all))]
        assert {str(trial.number) for trial in trials.all if trial.status == FAILED} == killed
        assert {trial.status for trial in trials.all} <= {COMPLETED, FAILED, STOPPED}
        assert len(capped) <= PARALLEL, "only the last ones can reach their caps"
        assert len({entry.name for entry in list_jobs()}) == len(trials.all)
        assert most_at_a_time(lines) <= PARALLEL
        completed = [trial.name for trial in trials.all if trial.status == COMPLETED]
        models = [
            info.key for info in open_store(f"s3://{BUCKET}/out").list() if info.key.endswith("model.tar.gz")
        ]
        assert {*completed} <= {key.split("/")[0] for key in models}, "a model was lost"
        assert trials.finished == NO_BUDGET
        assert trials.cost is not None
        assert trials.cost <= BUDGET + OVERSHOOT * len(capped)
        print(
            f"{len(trials.all)} trials, {len(completed)} completed, {len(capped)} at their caps, {len(killed)} killed, "
            f"{most_at_a_time(lines)} at a time at most; {faults}; {trials.cost:.1f} of {BUDGET:.0f} EUR"
        )
        assert faults["controller"] > 10
        assert most_at_a_time(lines) > PARALLEL // 2, "too few at a time to show anything"
        assert killed


def _start(around: Surroundings, monkeypatch: pytest.MonkeyPatch) -> StartedSweep:
    """Only the sweep is on the disk that will be full: a job that cannot write fails, as it should."""
    home, sweeps = around.folder / "state", around.disk / "sweeps"
    home.mkdir(mode=0o700)
    sweeps.mkdir(mode=0o700)
    (home / "sweeps").symlink_to(sweeps)
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(home))
    (around.folder / "prices.yaml").write_text(
        "prices: {currency: EUR, rows: [{platform: local, node_hour: 3600}]}"
    )
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(around.folder / "prices.yaml"))
    monkeypatch.setenv("CLOUDTRAIN_STORAGE_PATIENCE", "120")
    (around.folder / "train.py").write_text(SCRIPT)
    (around.folder / "runs").touch()
    fields = {
        "entry_point": str(around.folder / "train.py"),
        "platform": "local",
        "environment": {"RUNS": str(around.folder / "runs")},
        "metric_definitions": [{"Name": "loss", "Regex": "loss=([0-9.e+-]+)"}],
        "output_path": f"s3://{BUCKET}/out",
        "samples": False,
    }
    plan = make_plan(
        "soak", {"rate": "0.0..1.0"}, "loss", trials=MOST_TRIALS, parallel=PARALLEL, max_cost=BUDGET, seed=1
    )
    return create(fields, plan)


def _run_under_faults(started: StartedSweep, around: Surroundings) -> tuple[set[str], dict[str, int]]:
    """Run the sweep to its end. Returns the trials that were killed, and how often each fault has happened."""
    source, killed = random.Random(1), set[str]()
    faults = {"controller": 0, "storage": 0, "disk": 0}
    program = [sys.executable, str(Path(__file__).parents[1] / "integration/sweep/controlled.py"), "soak"]
    deadline = time.monotonic() + 2800
    while started.trials.finished is None:
        assert time.monotonic() < deadline
        faults["controller"] += 1
        with subprocess.Popen(program) as controller:
            for _ in range(source.randint(1, 8)):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    controller.wait(source.uniform(0.2, KILL_EVERY))
                    break
                fault = source.random()
                if fault < 0.3:
                    killed |= kill_a_trial(around.folder / "runs", source)
                elif fault < 0.4:
                    faults["storage"] += 1
                    take_storage_away(around, source.choice(("killed", "503", "cut")), source.uniform(0.3, 5))
                elif fault < 0.5:
                    faults["disk"] += 1
                    fill_disk(around, source.uniform(0.3, 3))
                trials = started.trials
                assert len(trials.open) <= PARALLEL, "more trials at a time than allowed"
                beyond = sum(max((one.cost or 0) - (one.max_cost or 0), 0) for one in trials.all)
                assert trials.committed <= BUDGET + beyond + 1e-6
            controller.kill()
    return killed, faults


def _lines(around: Surroundings) -> list[list[str]]:
    return [line.split() for line in (around.folder / "runs").read_text().splitlines()]


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
