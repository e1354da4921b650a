"""The progress of an unmodified script with a real Trainer of Hugging Face transformers."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from cloudtrain import Estimator
from cloudtrain.contract import JobStatus

PACKAGES = ("transformers>=5.4,<6", "accelerate>=1,<2")
FOLDER = Path.home() / ".cache" / "cloudtrain-bench" / "transformers"

SCRIPT = """
import time
import torch
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

class Line(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(3, 1)
        self.post_init()

    def forward(self, x, labels=None):
        time.sleep(0.1)
        found = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(found, labels), "logits": found}

data = [{"x": torch.randn(3), "labels": torch.randn(1)} for _ in range(100)]
arguments = TrainingArguments("out", max_steps=200, logging_steps=10, use_cpu=True, save_strategy="no")
Trainer(Line(PretrainedConfig()), arguments, train_dataset=data).train()
"""


@pytest.fixture(scope="module")
def packages() -> Path:
    """The folder of transformers, without another torch. It is filled once."""
    mark = FOLDER / "packages.txt"
    if not mark.is_file() or mark.read_text() != "\n".join(PACKAGES):
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(FOLDER)]
        subprocess.run([*pip, PACKAGES[0]], check=True)
        subprocess.run([*pip, "--no-deps", PACKAGES[1]], check=True)
        mark.write_text("\n".join(PACKAGES))
    return FOLDER


def test_a_trainer_shows_how_long_it_will_take(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    environment = {"PYTHONPATH": str(packages), "HF_HUB_OFFLINE": "1"}
    job = Estimator("train.py", source_dir=str(tmp_path), environment=environment).fit(wait=False)
    remaining = []
    while not job.status.is_final:
        found = job.describe()
        if found.remaining_seconds is not None:
            assert found.total_steps == 200
            assert found.step_rate is not None and 1 < found.step_rate < 10
            remaining.append(found.remaining_seconds)
        time.sleep(0.5)
    assert job.status == JobStatus.COMPLETED, job.logs()
    assert remaining[-1] < remaining[0] < 200
    found = job.describe()
    assert (found.step, found.total_steps, found.progress) == (200, 200, 1.0)
    assert {"loss", "learning_rate", "epoch"} <= set(found.metrics)
    assert found.goodput is not None and found.goodput.measured_by == "steps"
