"""`HyperparameterTuner` with jobs of this machine: a search in Bayesian steps, its results, a stop, and a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudtrain import (
    CategoricalParameter,
    ContinuousParameter,
    Estimator,
    HyperparameterTuner,
    Job,
    TrainingFailed,
)
from cloudtrain.errors import CloudtrainError

SCRIPT = """
import argparse, os, time
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--depth")
options = parser.parse_args()
time.sleep(float(os.environ.get("SECONDS", 0)))
Path(os.environ["SM_MODEL_DIR"], "model").write_text(options.depth)
print(f"{os.environ.get('METRIC', 'loss')}={options.lr + float(options.depth)}", flush=True)
"""
RANGES = {"lr": ContinuousParameter(0.1, 0.9), "depth": CategoricalParameter([1, 2])}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def tuner_of(environment: dict[str, str] | None = None, **arguments: Any) -> HyperparameterTuner:
    estimator = Estimator("train.py", instance_type="local", environment=environment or {}, samples=False)
    metrics = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
    given = {"objective_type": "Minimize", "random_seed": 1, **arguments}
    return HyperparameterTuner(estimator, "loss", RANGES, metrics, **given)


def test_a_search(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tuner = tuner_of(max_jobs=4, max_parallel_jobs=2)
    assert tuner.prepare(job_name="tune").job_name == "tune-0000"
    with pytest.raises(CloudtrainError, match="has not started a tuning job yet"):
        tuner.best_training_job()
    tuner.fit(job_name="tune")
    assert capsys.readouterr().out.count("Completed loss=") == 4
    rows = tuner.analytics().rows()
    assert [(row["TrainingJobName"], row["TrainingJobStatus"]) for row in rows] == [
        (f"tune-{number:04d}", "Completed") for number in range(4)
    ]
    assert all(row["FinalObjectiveValue"] == pytest.approx(row["lr"] + float(row["depth"])) for row in rows)
    assert {row["depth"] for row in rows} <= {"1", "2"}
    assert all(row["TrainingElapsedTimeSeconds"] > 0 for row in rows)
    best = min(rows, key=lambda row: row["FinalObjectiveValue"])
    described = tuner.describe()
    assert described["HyperParameterTuningJobStatus"] == "Completed"
    assert described["TrainingJobStatusCounters"]["Completed"] == 4
    assert described["BestTrainingJob"]["TrainingJobName"] == tuner.best_training_job()
    assert tuner.best_training_job() == best["TrainingJobName"]
    estimator = tuner.best_estimator()
    assert estimator.hyperparameters() == {"lr": best["lr"], "depth": best["depth"]}
    assert estimator.model_data == Job.attach(best["TrainingJobName"]).describe().model_data
    attached = HyperparameterTuner.attach("tune")
    assert attached.best_training_job() == tuner.best_training_job()
    assert attached.hyperparameter_ranges() == {
        **(tuner.hyperparameter_ranges() or {}),
        "ContinuousParameterRanges": [
            {"Name": "lr", "MinValue": "0.1", "MaxValue": "0.9", "ScalingType": "Linear"}
        ],
    }
    assert (attached.max_jobs, attached.max_parallel_jobs, attached.strategy) == (4, 2, "Bayesian")
    with pytest.raises(CloudtrainError, match="there is already a sweep tune"):
        tuner.fit(job_name="tune")


def test_a_search_that_is_stopped(folder: Path) -> None:
    tuner = tuner_of({"SECONDS": "300"}, max_jobs=4, base_tuning_job_name="mine")
    assert tuner.estimator
    tuner.estimator.set_hyperparameters(sagemaker_region="nowhere")
    with pytest.warns(UserWarning, match="hyperparameters that begin with sagemaker_") as warned:
        job = tuner.fit(wait=False)
    assert warned[0].filename == __file__
    assert job.name.startswith("mine-")
    assert tuner.describe()["HyperParameterTuningJobStatus"] == "InProgress"
    tuner.stop_tuning_job()
    tuner.wait()
    described = tuner.describe()
    assert described["HyperParameterTuningJobStatus"] == "Stopped"
    assert described["TrainingJobStatusCounters"]["Completed"] == 0
    with pytest.raises(CloudtrainError, match="has no best training job"):
        tuner.best_estimator()


def test_a_search_without_its_objective_fails(folder: Path) -> None:
    tuner = tuner_of({"METRIC": "other"}, max_jobs=9, strategy="Random")
    with pytest.raises(TrainingFailed, match="3 trials have completed, and none has a value of loss"):
        tuner.fit(job_name="tune", logs=False)
    assert tuner.describe()["HyperParameterTuningJobStatus"] == "Failed"
