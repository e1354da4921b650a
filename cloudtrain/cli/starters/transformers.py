"""Fit a linear model to the rows of train.csv with Hugging Face's Trainer, on any number of ranks.

    cloudtrain submit train.yaml

It resumes after a restart. Replace the data and the model by your own.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from transformers import HfArgumentParser, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


class Model(torch.nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(features, 1)

    def forward(self, features: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.layer(features)
        return {"loss": torch.nn.functional.mse_loss(found, labels), "logits": found}


[arguments] = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
arguments.dataloader_pin_memory &= torch.cuda.is_available()  # without a GPU, every epoch would warn
data = Path(os.environ.get("SM_CHANNEL_TRAIN", "data"))
rows = torch.tensor(np.loadtxt(data / "train.csv", delimiter=",", skiprows=1, dtype="float32"))
torch.manual_seed(0)
trainer = Trainer(
    Model(rows.shape[1] - 1),
    arguments,
    train_dataset=[{"features": row[:-1], "labels": row[-1:]} for row in rows],
)
trainer.train(resume_from_checkpoint=get_last_checkpoint(arguments.output_dir))
trainer.save_model(os.environ.get("SM_MODEL_DIR", "model"))
