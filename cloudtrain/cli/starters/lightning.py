"""Fit a linear model to the rows of train.csv with Lightning, on any number of ranks. It resumes after a restart.

    cloudtrain submit train.yaml
    python src/train.py             # one rank, without a job

Replace the data and the model by your own.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

import cloudtrain


class Model(L.LightningModule):
    def __init__(self, features: int, lr: float) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(features, 1)
        self.lr = lr

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        total = int(self.trainer.estimated_stepping_batches)
        cloudtrain.log(step=self.global_step + 1, total_steps=total, loss=loss)  # the mean of all ranks
        if self.trainer.is_last_batch:
            self.print(f"epoch {self.current_epoch + 1}: loss={loss.item():.4f}", flush=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.lr)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--data", type=Path, default=os.environ.get("SM_CHANNEL_TRAIN", "data"))
parser.add_argument("--model-dir", type=Path, default=os.environ.get("SM_MODEL_DIR", "."))
parser.add_argument("--checkpoints", type=Path, default="checkpoints")
arguments = parser.parse_args()

rows = torch.tensor(np.loadtxt(arguments.data / "train.csv", delimiter=",", skiprows=1, dtype="float32"))
trainer = L.Trainer(
    accelerator="auto",
    devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),  # Lightning compares both with the ranks of the job
    num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
    strategy="ddp" if "WORLD_SIZE" in os.environ else "auto",
    max_epochs=arguments.epochs,
    callbacks=[ModelCheckpoint(arguments.checkpoints, save_last=True, enable_version_counter=False)],
    logger=False,
    enable_progress_bar=False,
)
L.seed_everything(0)
model = Model(rows.shape[1] - 1, arguments.lr)
batches = DataLoader(TensorDataset(rows[:, :-1], rows[:, -1:]), batch_size=8, shuffle=True)
last = arguments.checkpoints / "last.ckpt"
trainer.fit(model, batches, ckpt_path=last if last.exists() else None)
if trainer.is_global_zero:
    torch.save(model.state_dict(), arguments.model_dir / "model.pt")
