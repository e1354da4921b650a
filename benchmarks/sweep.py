"""Measures what the controller of a sweep costs: the trials it starts and learns from in a minute, and its memory.

    python benchmarks/sweep.py [overhead] [ray] [jobs] [asha] [--runs 3] [--trials 1000] [--quick] [--json]

``overhead``: trials whose jobs do nothing, 8 at a time, against Optuna alone, which starts no jobs: in memory, and with
its journal in a file. cloudtrain packs, renders and records each job. ``ray``: the same once against Ray Tune on this
machine, whose actors are reused; its memory is that of its driver alone. ``jobs``: real local jobs that end
immediately, 8 at a time, against Ray Tune with a process for each trial. ``asha``: the time until a trial is as good as
the best 1% of configurations, with ASHA and without a pruner. The curves are from a table, and an epoch of a trial is
a simulated second: the machine does not matter.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _common import REPOSITORY, Report, run_parts
from _peers import RAY_TUNE, peer
from _sweep_contestant import CONTESTANTS

SAMPLERS = ("random", "tpe")


def overhead(report: Report, given: argparse.Namespace) -> None:
    trials = 20 if given.quick else given.trials
    for sampler in SAMPLERS:
        found: dict[str, list[dict[str, float]]] = {who: [] for who in CONTESTANTS}
        for _ in range(given.runs):
            for who, runs in found.items():
                runs.append(_run(who, sampler, trials))
        for what, key, unit in (("time of a trial", "seconds", "s"), ("memory", "memory", "B")):
            for who, runs in found.items():
                values = [one[key] / (trials if key == "seconds" else 1) for one in runs]
                report.add(f"sweep of {trials} trials, {sampler}: {what}", who, values, unit)


def ray(report: Report, given: argparse.Namespace) -> None:
    who = "Ray Tune, actors reused"
    with report.optional(who):
        python = str(peer(RAY_TUNE))
        ours, theirs = ("cloudtrain", sys.executable), (who, python)
        for contestant, interpreter in (ours, theirs):
            found = _run(contestant, "random", given.trials, interpreter)
            what = f"sweep of {given.trials} trials, random, against Ray"
            report.add(f"{what}: time of a trial", contestant, found["seconds"] / given.trials)
            report.add(f"{what}: memory", contestant, found["memory"], "B")


def _run(who: str, sampler: str, trials: int, python: str = sys.executable) -> dict[str, float]:
    script = Path(__file__).with_name("_sweep_contestant.py")
    command = [python, str(script), who, sampler, str(trials)]
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def jobs(report: Report, given: argparse.Namespace) -> None:
    from cloudtrain.sweep.plan import make_plan
    from cloudtrain.sweep.start import create

    trials = 4 if given.quick else 40
    seconds = []
    for _ in range(given.runs):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["CLOUDTRAIN_HOME"] = f"{folder}/home"
            script = Path(folder, "train.py")
            script.write_text("print('loss=1')")
            definitions = [{"Name": "loss", "Regex": "loss=(.*)"}]
            fields = {"entry_point": str(script), "platform": "local", "metric_definitions": definitions}
            started = create(
                fields, make_plan("bench", {"lr": "0.0..1.0"}, "loss", trials=trials, parallel=8)
            )
            began = time.perf_counter()
            started.run_here()
            seconds.append((time.perf_counter() - began) / trials)
    what = f"sweep of {trials} local jobs, 8 at a time: time of a trial"
    report.add(what, "cloudtrain", seconds)
    with report.optional("Ray Tune"):
        python = str(peer(RAY_TUNE))
        times = [_run("Ray Tune", "random", trials, python)["seconds"] for _ in range(given.runs)]
        report.add(what, "Ray Tune", [one / trials for one in times])


EPOCHS, CONFIGURATIONS, WORKERS, SEARCHES = 27, 1000, 8, 9


def asha(report: Report, given: argparse.Namespace) -> None:
    searches = 1 if given.quick else SEARCHES
    for who, pruner in (("cloudtrain, asha", "asha"), ("cloudtrain, random", None)):
        times = [_time_to_quality(pruner, seed) for seed in range(searches)]
        report.add("search for the best 1% of configurations: simulated time", who, times)


def _time_to_quality(pruner: str | None, seed: int) -> float:
    from cloudtrain.sweep.plan import make_plan
    from cloudtrain.sweep.suggest import suggestions
    from cloudtrain.sweep.trials import COMPLETED, PRUNED, Trial

    table = [_curve(random.Random(f"{seed} {number}")) for number in range(CONFIGURATIONS)]
    good = sorted(curve[-1] for curve in table)[CONFIGURATIONS // 100]
    space = {"configuration": f"0..{CONFIGURATIONS - 1}"}
    engine = suggestions(make_plan("bench", space, "loss", sampler="random", pruner=pruner, seed=seed), ())
    running: list[tuple[float, int, int]] = []
    trials: list[Trial] = []

    def start(now: float) -> None:
        number = len(trials)
        trials.append(Trial(number, "", engine.ask(number)[0], now))
        heapq.heappush(running, (now + 1, number, 1))

    for _ in range(WORKERS):
        start(0.0)
    while True:
        now, number, epoch = heapq.heappop(running)
        loss = table[trials[number].parameters["configuration"]][epoch - 1]
        if loss <= good:
            return now
        is_pruned = engine.report(number, epoch, loss)
        if not is_pruned and epoch < EPOCHS:
            heapq.heappush(running, (now + 1, number, epoch + 1))
            continue
        trial = trials[number]
        trial.status, trial.value, trial.ended_at = PRUNED if is_pruned else COMPLETED, loss, now
        engine.tell(trial)
        start(now)


def _curve(source: random.Random) -> list[float]:
    """The loss of a configuration after each epoch. Curves cross, because some configurations are slow but end well."""
    final, rate = source.random(), source.uniform(0.5, 1.5)
    return [final + (1 - final) * epoch**-rate for epoch in range(1, EPOCHS + 1)]


PARTS: dict[str, Callable[[Report, argparse.Namespace], None]] = {
    "overhead": overhead,
    "ray": ray,
    "jobs": jobs,
    "asha": asha,
}

if __name__ == "__main__":
    run_parts(__doc__, PARTS, runs=3, options=(("--trials", 1000),))
