"""A sweep of jobs on a real Slurm: trials on two nodes, a controller that is killed, and one that continues."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sdk_tuner_example import run_example
from slurm_cluster import SlurmCluster
from slurm_jobs import ONE_RANK, POLL, number_of, wait_for_end, wait_until

from cloudtrain import ContinuousParameter, Estimator, HyperparameterTuner, Job
from cloudtrain.platforms.batch.submitting import SUBMIT_SECONDS
from cloudtrain.storage.atomic import replace_file
from cloudtrain.sweep import StartedSweep
from cloudtrain.sweep.journal import LOG
from cloudtrain.sweep.plan import make_plan
from cloudtrain.sweep.start import create
from cloudtrain.sweep.started import sweep_names
from cloudtrain.sweep.trials import COMPLETED, FAILED, RUNNING

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


MPI = {"mpi": {"processes_per_host": 1}}


@pytest.mark.parametrize(
    "distribution", [ONE_RANK, pytest.param(MPI, marks=pytest.mark.soak)], ids=["", "mpi"]
)
def test_a_sweep_on_two_nodes_survives_its_controller(
    distribution: dict[str, Any], slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text(SCRIPT)
    estimator = Estimator(
        str(tmp_path / "train.py"),
        platform="slurm",
        instance_count=2,
        distribution=distribution,
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


KILLED_IN_SBATCH = """#!/bin/sh
cp job.sh "$LATE"
kill -9 $CONTROLLER
kill -9 0
"""


def test_a_controller_that_is_killed_inside_of_sbatch(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is submitted again once it is clear that it never was; also if the first submission arrives later."""
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LATE", str(tmp_path / "late.sh"))
    (tmp_path / "train.py").write_text(
        "import cloudtrain, sys\n"
        f"with open('{tmp_path}/runs', 'a') as file: file.write(sys.argv[2] + '\\n')\n"
        "cloudtrain.log(step=1, loss=float(sys.argv[2]))\n"
    )
    script = str(tmp_path / "train.py")
    estimator = Estimator(script, platform="slurm", distribution=ONE_RANK, platform_options=POLL)
    started = create(estimator.fields, make_plan("opt", {"rate": [0.2, 0.3]}, "loss", sampler="grid"))
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(KILLED_IN_SBATCH)
    sbatch.chmod(0o755)
    command = shlex.join([sys.executable, CONTROLLED, "opt"])
    killed = subprocess.run(
        ["sh", "-c", f"CONTROLLER=$$ PATH={tmp_path}/bin:$PATH exec {command}"], timeout=120
    )
    assert killed.returncode == -signal.SIGKILL
    sbatch.unlink()
    started.start_controller()
    wait_until(lambda: started.trials.all[0].status == RUNNING, "a controller that waits for the job")
    record = tmp_path / "home/jobs/slurm/opt-0000/state.json"
    submitted_at = json.loads(record.read_text())["submitted_at"]
    long_ago = {**json.loads(record.read_text()), "submitted_at": submitted_at - SUBMIT_SECONDS}
    replace_file(record, json.dumps(long_ago).encode())
    trials = started.wait()
    assert [(trial.status, trial.value) for trial in trials.all] == [(COMPLETED, 0.2), (COMPLETED, 0.3)]
    log = (started.journal.folder / LOG).read_text()
    assert "the submission of opt-0000 was interrupted: it is submitted again" in log
    late = slurm("sbatch", "--parsable", str(tmp_path / "late.sh"))
    slurm.wait(int(late), "COMPLETED", patience=120)
    assert (tmp_path / "runs").read_text().split() == ["0.2", "0.3"]


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


@pytest.mark.soak
def test_the_example_of_the_sdk(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "digits").touch()
    types = "slurm: {instance_types: {ml.c5.2xlarge: {partition: main}}}"
    config = f"platform: slurm\n{types}\nplatform_options: {{poll_seconds: 1}}\n"
    run_example(tmp_path, config, (tmp_path / "data").as_uri(), monkeypatch)


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


CONTROLLER = """
unset PYTHONPATH
if cloudtrain sweep describe opt > /dev/null 2>&1
then exec cloudtrain sweep continue opt --foreground
else exec cloudtrain sweep opt.yaml --name opt --foreground
fi
"""


def test_a_job_controls_a_sweep_of_jobs_also_after_it_was_killed(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both of its attempts submit jobs to the cluster from inside of it."""
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    source = tmp_path / "source"
    source.mkdir()
    (source / "controller.sh").write_text(CONTROLLER)
    (source / "train.py").write_text(
        "import cloudtrain, os, sys, time\n"
        f"while not os.path.exists('{tmp_path}/killed'): time.sleep(0.1)\n"
        "cloudtrain.log(step=1, loss=float(sys.argv[2]))\n"
    )
    (source / "opt.yaml").write_text(
        "entry_point: train.py\n"
        "platform: slurm\n"
        "platform_options: {poll_seconds: 1}\n"
        "sweep: {space: {rate: [0.1, 0.2, 0.3]}, metric: loss, sampler: grid, parallel: 2}\n"
    )
    controller = Estimator(
        "controller.sh",
        source_dir=str(source),
        platform="slurm",
        max_retry_attempts=3,
        platform_options=POLL,
    ).fit(job_name="opt-controller", wait=False)
    wait_until(lambda: "opt" in sweep_names(), "the sweep", more=controller.logs)
    started = StartedSweep.attach("opt")
    wait_until(lambda: len(started.trials.all) == 2, "two trials", more=controller.logs)
    assert started.status == "Running"
    owner = started.journal.owner()
    assert owner
    os.kill(owner["pid"], signal.SIGKILL)
    (tmp_path / "killed").touch()
    wait_for_end(controller)
    log = controller.logs()
    assert controller.status == "Completed", log
    assert [trial.value for trial in started.trials.all] == [0.1, 0.2, 0.3]
    assert "best: opt-0000  loss=0.1" in log
