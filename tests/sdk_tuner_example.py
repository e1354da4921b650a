"""The example of a tuner in the notebooks of the SageMaker SDK, with the imports of cloudtrain and three jobs.

Where its jobs run, and in which image, is in the config file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudtrain import HyperparameterTuner

TRAIN = """
import argparse, os
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int)
parser.add_argument("--backend", type=str)
parser.add_argument("--model-dir", type=str, default=os.environ["SM_MODEL_DIR"])
parser.add_argument("--data-dir", type=str, default=os.environ["SM_CHANNEL_TRAINING"])
options = parser.parse_args()
assert os.listdir(options.data_dir) == ["digits"]
print(f"Test set: Average loss: {options.lr + 1 / options.batch_size:.4f}, Accuracy: 9/10 (90%)", flush=True)
"""
EXAMPLE = """
from cloudtrain.sagemaker.pytorch import PyTorch
from cloudtrain.sagemaker.tuner import (
    IntegerParameter,
    CategoricalParameter,
    ContinuousParameter,
    HyperparameterTuner,
)

estimator = PyTorch(
    entry_point="mnist.py",
    role=role,
    py_version="py3",
    framework_version="1.8.0",
    instance_count=1,
    instance_type="ml.c5.2xlarge",
    hyperparameters={"epochs": 1, "backend": "gloo"},
)
hyperparameter_ranges = {
    "lr": ContinuousParameter(0.001, 0.1),
    "batch-size": CategoricalParameter([32, 64, 128, 256, 512]),
}
objective_metric_name = "average test loss"
objective_type = "Minimize"
metric_definitions = [
    {"Name": "average test loss", "Regex": "Test set: Average loss: ([0-9\\\\.]+)"}
]
tuner = HyperparameterTuner(
    estimator,
    objective_metric_name,
    hyperparameter_ranges,
    metric_definitions,
    max_jobs=3,
    max_parallel_jobs=3,
    objective_type=objective_type,
)
tuner.fit({"training": inputs})
"""


def run_example(folder: Path, config: str, inputs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the example in ``folder``, and look at its results.

    Args:
        inputs: a channel that has the file ``digits``.
    """
    monkeypatch.chdir(folder)
    (folder / "mnist.py").write_text(TRAIN)
    (folder / "config.yaml").write_text(config)
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(folder / "config.yaml"))
    names = {"role": "arn:aws:iam::123456789012:role/Train", "inputs": inputs}
    exec(EXAMPLE, names)
    tuner = names["tuner"]
    assert isinstance(tuner, HyperparameterTuner)
    rows = tuner.analytics().rows()
    assert [row["TrainingJobStatus"] for row in rows] == ["Completed"] * 3
    losses = [round(row["lr"] + 1 / float(row["batch-size"]), 4) for row in rows]
    assert [row["FinalObjectiveValue"] for row in rows] == pytest.approx(losses)
    assert tuner.best_training_job() == rows[losses.index(min(losses))]["TrainingJobName"]
    best = tuner.best_estimator().hyperparameters()
    assert (best["epochs"], best["backend"]) == (1, "gloo")
