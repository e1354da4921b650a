"""A sweep of jobs on a real Slurm: trials on two nodes, a controller that is killed, and one that continues."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import SlurmCluster
from slurm_jobs import ONE_RANK, POLL, number_of

from cloudtrain import ContinuousParameter, Estimator, HyperparameterTuner, Job
from cloudtrain.sweep import StartedSweep
from cloudtrain.sweep.plan import make_plan
from cloudtrain.sweep.start import create
from cloudtrain.sweep.trials import COMPLETED, FAILED

CONTROLLED = str(Path(__file__).parents[1] / "sweep/controlled.py")
SCRIPT = """
import argparse, os, cloudtrain
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
rate = parser.parse_args().rate
if rate > 0.35:
    raise MemoryError("CUDA out of memory")
cloudtrain.log(step=1, loss=rate)
"""


def test_a_sweep_on_two_nodes_survives_its_controller(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text(SCRIPT)
    estimator = Estimator(
        str(tmp_path / "train.py"),
        platform="slurm",
        instance_count=2,
        distribution=ONE_RANK,
        platform_options=POLL,
    )
    plan = make_plan("opt", {"rate": [0.2, 0.3, 0.4]}, "loss", sampler="grid", parallel=2)
    started = create(estimator.fields, plan)
    killed = subprocess.run([sys.executable, CONTROLLED, "opt", "submitted", "before"], timeout=120)
    assert killed.returncode == -signal.SIGKILL
    number = number_of(Job.attach("opt-0000", "slurm"))
    started.start_controller()
    trials = started.wait()
    assert [trial.status for trial in trials.all] == [COMPLETED, COMPLETED, FAILED]
    assert trials.all[2].failure_class == "out-of-memory"
    assert [trial.value for trial in trials.all] == [0.2, 0.3, None]
    assert number_of(Job.attach("opt-0000", "slurm")) == number, "the job was submitted again"
    assert started.best().name == "opt-0000"


def test_a_tuner_searches_on_slurm(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text(SCRIPT)
    script = str(tmp_path / "train.py")
    estimator = Estimator(script, platform="slurm", distribution=ONE_RANK, platform_options=POLL)
    ranges = {"rate": ContinuousParameter(0.1, 0.3)}
    limits: dict[str, Any] = {"max_jobs": 2, "max_parallel_jobs": 2, "random_seed": 1}
    tuner = HyperparameterTuner(
        estimator, "loss", ranges, strategy="Random", objective_type="Minimize", **limits
    )
    tuner.fit(job_name="tune", logs=False)
    rows = tuner.analytics().rows()
    assert [row["TrainingJobStatus"] for row in rows] == ["Completed"] * 2
    assert tuner.best_training_job() == min(rows, key=lambda row: row["rate"])["TrainingJobName"]
    assert tuner.best_estimator().hyperparameters() == {"rate": min(row["rate"] for row in rows)}


def test_one_allocation_has_several_trials(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep runs inside of a job of one node, and each trial has one of the two GPUs of the allocation."""
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    script = tmp_path / "train.py"
    script.write_text(
        "import cloudtrain, os, sys, time\n"
        f"with open('{tmp_path}/runs', 'a') as file: file.write(os.environ['CUDA_VISIBLE_DEVICES'] + '\\n')\n"
        "time.sleep(1)\n"
        "cloudtrain.log(step=1, loss=float(sys.argv[2]))\n"
    )
    sweep = [sys.executable, "-m", "cloudtrain", "sweep", str(script), "--name", "opt", "--platform", "local"]
    space = ["--search", "rate=0.1,0.2,0.3,0.4", "--sampler", "grid", "--metric", "loss"]
    command = shlex.join([*sweep, *space, "--trials-per-host", "2", "--foreground"])
    home = f"export CLOUDTRAIN_HOME={shlex.quote(str(tmp_path / 'home'))}"
    number = slurm.submit(f"{home}\n{command}", "--gres=gpu:2")
    slurm.wait(number, "COMPLETED", patience=120)
    assert "best: opt-0000  loss=0.1" in slurm.output(number)
    trials = StartedSweep.attach("opt").trials
    assert [trial.status for trial in trials.all] == [COMPLETED] * 4
    assert sorted({*(tmp_path / "runs").read_text().split()}) == ["0", "1"]
