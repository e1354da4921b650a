"""A sweep of jobs on a real API server: a controller that is killed when it has submitted, and one that continues."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kube_fixtures import Namespace
from kube_in_cluster import as_pod
from kube_nodes import Node
from kube_roles import RULES
from kube_training import estimator
from sdk_tuner_example import run_example

from cloudtrain import ContinuousParameter, HyperparameterTuner
from cloudtrain.storage import open_store
from cloudtrain.sweep.plan import make_plan
from cloudtrain.sweep.start import create
from cloudtrain.sweep.trials import COMPLETED, FAILED
from cloudtrain.testing import S3Server

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


@pytest.mark.soak
def test_the_example_of_the_sdk(
    kubernetes: Namespace, s3: str, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubernetes.give_storage(s3_server)
    kubernetes.cluster.add_node(Node("c5", labels={"node.kubernetes.io/instance-type": "c5.2xlarge"}))
    open_store(f"s3://{s3}/data").write("digits", b"")
    config = f"platform: kubernetes\nimage_uri: python\noutput_path: s3://{s3}/out\n"
    run_example(tmp_path, config, f"s3://{s3}/data", monkeypatch)


@pytest.mark.soak
def test_a_pod_controls_a_sweep_also_after_it_was_killed(
    kubernetes: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of the sweep is in a folder that outlives the pod, as on a claim."""
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "opt.yaml").write_text(
        "entry_point: train.py\n"
        "platform: kubernetes\n"
        "image_uri: python\n"
        "platform_options: {discard_outputs: true}\n"
        "metric_definitions: [{Name: loss, Regex: 'loss=([0-9.]+)'}]\n"
        "sweep: {space: {rate: [0.3, 0.1, 0.2]}, metric: loss, sampler: grid, parallel: 2}\n"
    )
    pod, environ = as_pod(kubernetes, tmp_path, RULES)
    sweep = [*pod, sys.executable, "-m", "cloudtrain", "sweep"]
    with subprocess.Popen(
        [*sweep, "opt.yaml", "--name", "opt", "--foreground"], cwd=tmp_path, env=environ
    ) as first:
        kubernetes.wait_until(lambda: kubernetes.bench.list("jobs", kubernetes.name), "the first trial")
        first.kill()
    more = subprocess.run(
        [*sweep, "continue", "opt", "--foreground"],
        cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert more.returncode == 0, more.stderr
    assert "best: opt-0001  loss=0.1" in more.stdout
    assert len(kubernetes.bench.list("jobs", kubernetes.name)) == 3
