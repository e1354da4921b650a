"""A sweep of jobs on a real API server: a controller that is killed when it has submitted, and one that continues."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kube_fixtures import Namespace
from kube_training import estimator

from cloudtrain import ContinuousParameter, HyperparameterTuner
from cloudtrain.sweep.plan import make_plan
from cloudtrain.sweep.start import create
from cloudtrain.sweep.trials import COMPLETED, FAILED

CONTROLLED = str(Path(__file__).parents[1] / "sweep/controlled.py")
SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
rate = parser.parse_args().rate
assert rate < 0.4
print(f"loss={rate}", flush=True)
"""


def test_a_sweep_in_a_cluster_survives_its_controller(kubernetes: Namespace, tmp_path: Path) -> None:
    described = estimator(
        tmp_path,
        SCRIPT,
        instance_count=1,
        output_path=None,
        metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
        options={"discard_outputs": True},
    )
    plan = make_plan("opt", {"rate": [0.2, 0.3, 0.4]}, "loss", sampler="grid", parallel=2)
    started = create(described.fields, plan)
    killed = subprocess.run([sys.executable, CONTROLLED, "opt", "submitted", "before"], timeout=120)
    assert killed.returncode == -signal.SIGKILL
    first = kubernetes.bench.get("jobs", kubernetes.name, "opt-0000")["metadata"]["uid"]
    started.start_controller()
    trials = started.wait()
    assert [trial.status for trial in trials.all] == [COMPLETED, COMPLETED, FAILED]
    assert "AssertionError" in trials.all[2].why
    assert [trial.value for trial in trials.all] == [0.2, 0.3, None]
    assert kubernetes.bench.get("jobs", kubernetes.name, "opt-0000")["metadata"]["uid"] == first


@pytest.mark.soak  # in CI, a sweep runs in a cluster, and a tuner on hosts and on this machine
def test_a_tuner_searches_in_a_cluster(kubernetes: Namespace, tmp_path: Path) -> None:
    described = estimator(
        tmp_path, SCRIPT, instance_count=1, output_path=None, options={"discard_outputs": True}
    )
    tuner = HyperparameterTuner(
        described,
        "loss",
        {"rate": ContinuousParameter(0.1, 0.3)},
        [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
        strategy="Random",
        objective_type="Minimize",
        max_jobs=2,
        max_parallel_jobs=2,
        random_seed=1,
    )
    tuner.fit(job_name="tune", logs=False)
    rows = tuner.analytics().rows()
    assert [row["TrainingJobStatus"] for row in rows] == ["Completed"] * 2
    assert tuner.best_training_job() == min(rows, key=lambda row: row["rate"])["TrainingJobName"]
    assert tuner.best_estimator().hyperparameters() == {"rate": min(row["rate"] for row in rows)}
    assert {job["metadata"]["name"] for job in kubernetes.bench.list("jobs", kubernetes.name)} == {
        row["TrainingJobName"] for row in rows
    }
