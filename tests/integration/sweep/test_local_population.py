"""Population based training with real jobs: the worst ends, and its replacement continues from the best."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_local_sweep import control, until

from cloudtrain import InvalidJob, Job
from cloudtrain.cli import cli
from cloudtrain.errors import PlatformError
from cloudtrain.platforms import get_platform
from cloudtrain.platforms.supervised.leftovers import JobEnds
from cloudtrain.sweep.leftovers import old_checkpoints
from cloudtrain.sweep.plan import make_plan
from cloudtrain.sweep.start import create
from cloudtrain.sweep.trials import COMPLETED, PRUNED

SCRIPT = """
import argparse, os, time
from pathlib import Path
import numpy
import cloudtrain
from cloudtrain.checkpoint import Checkpointer

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
rate = parser.parse_args().rate
runs, number = Path(os.environ["RUNS"]), os.environ["CLOUDTRAIN_TRIAL"]

with Checkpointer(asynchronous=False) as checkpointer:
    restored = checkpointer.restore()
    first = restored.step + 1 if restored else 1
    rates = [*restored.state["rates"]] if restored else []
    with open(runs / number, "a") as file:
        file.write(f"{first} {' '.join(map(str, rates))}\\n")
    for step in range(first, 8):
        rates.append(rate)
        checkpointer.save(step, {"rates": numpy.array(rates)})
        if step == 5:
            (runs / f"rate-{number}.new").write_text(str(rate))
            (runs / f"rate-{number}.new").rename(runs / f"rate-{number}")
            while len(found := [*runs.glob("rate-?")]) < 4:
                time.sleep(0.05)
            is_worst = rate == min(float(path.read_text()) for path in found)
            while not is_worst and not (runs / "worst").exists():
                time.sleep(0.05)
            if not is_worst:
                time.sleep(2)  # the controller sees the last value of the worst before those of the others
        cloudtrain.log(step=step, score=sum(rates))
        if step == 5:
            while is_worst:
                (runs / "worst").touch()
                time.sleep(1)  # it waits for its end
            while not (runs / "asked").exists():
                time.sleep(0.05)  # for the child
"""
KILLS = [
    ("submitted", "after"),
    *(("pruned", when) for when in ("before", "after")),
    ("ended", "before"),
    *(("asked", when) for when in ("before", "after")),
    ("submitted", "before"),
    ("ended", "after"),
]
"""Each event, before and after it is written, in the order in which they come."""


def test_a_replacement_continues_from_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "runs").mkdir()
    fields = {
        "entry_point": str(tmp_path / "train.py"),
        "platform": "local",
        "environment": {"RUNS": str(tmp_path / "runs")},
        "samples": False,
    }
    plan = make_plan(
        "opt", {"rate": "log:0.01..1.0"}, "score", sampler="pbt", trials=5, parallel=4, prune_after=5, seed=1
    )
    started = create(fields, plan)
    for event, when in KILLS:
        control("opt", event, when)
        if (event, when) == ("asked", "after"):
            (tmp_path / "runs" / "asked").touch()
            until(lambda: all(Job.attach(trial.name).status.is_final for trial in started.trials.all[:4]))
    control("opt")
    trials = started.trials
    assert trials.finished == "completed"
    first, child = trials.all[:4], trials.all[4]
    worst, best = (choose(first, key=lambda trial: trial.parameters["rate"]) for choose in (min, max))
    assert [trial.status for trial in first] == [PRUNED if trial is worst else COMPLETED for trial in first]
    assert (child.status, child.parent, worst.pruned_at) == (COMPLETED, best.number, 5)
    runs = [(tmp_path / "runs" / str(number)).read_text().splitlines() for number in range(5)]
    assert [len(lines) for lines in runs] == [1] * 5, "a trial ran twice"
    began, *rates = runs[4][0].split()
    assert int(began) == 6, "the child did not go on from the checkpoint of the boundary"
    assert {float(rate) for rate in rates} == {best.parameters["rate"]}
    assert started.describe()["trials"][4]["parent"] == best.number

    checkpoints = started.journal.folder / "checkpoints"
    clean = ["clean", "--jobs-older-than", "1h"]
    assert "checkpoints" not in CliRunner().invoke(cli, clean).stdout, "the sweep has just ended"
    os.utime(started.journal.folder / "events.jsonl", (1.0, 1.0))
    listed = CliRunner().invoke(cli, [*clean, "--dry-run"]).stdout
    assert re.search(r"checkpoints  opt  [0-9.]+ kB", listed), listed
    assert checkpoints.is_dir()
    ends = JobEnds(lambda platform, name: get_platform(platform).describe(name))
    (leftover,) = old_checkpoints(time.time(), ends)
    with started.journal.owned():
        with pytest.raises(
            PlatformError, match="sweep opt has a controller"
        ):  # continued since it was listed
            leftover.remove()
        assert checkpoints.is_dir()
        assert "checkpoints" not in CliRunner().invoke(cli, clean).stdout, "it has a controller"
    assert listed.splitlines()[0] in CliRunner().invoke(cli, clean).stdout
    assert not checkpoints.exists()

    (tmp_path / "train.py").write_text("print('score=1')")
    with pytest.raises(InvalidJob, match="pbt hands checkpoints on, and the source saves none"):
        create(fields, make_plan("other", {"rate": "0.1..1.0"}, "score", sampler="pbt", parallel=4))
