"""Classify scikit-learn's handwritten digits with Lightning, and resume from the last checkpoint.

cloudtrain submit train.yaml
"""

from __future__ import annotations

import argparse
import hashlib
import os
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Digits(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        right = (self.layers(batch[0]).argmax(1) == batch[1]).float().mean()
        self.log("accuracy", right, sync_dist=True)  # the mean over all ranks

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
parser.add_argument("--epochs", type=int, default=4)
arguments = parser.parse_args()

digits = load_digits()
data = TensorDataset(torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target))
train, test = torch.utils.data.random_split(data, [1437, 360], torch.Generator().manual_seed(0))
trainer = L.Trainer(
    accelerator="auto",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),  # Lightning compares both with the ranks that were started
    num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
    strategy="ddp",
    max_epochs=arguments.epochs,
    callbacks=[ModelCheckpoint(arguments.checkpoints, save_last=True, enable_version_counter=False)],
    logger=False,
    enable_progress_bar=False,
)
L.seed_everything(0)
model = Digits()
last = arguments.checkpoints / "last.ckpt"
trainer.fit(model, DataLoader(train, batch_size=32, shuffle=True), ckpt_path=last if last.exists() else None)
[measured] = trainer.validate(model, DataLoader(test, batch_size=64), verbose=False)
weights = torch.cat([value.detach().cpu().flatten() for value in model.state_dict().values()])
print(
    f"rank {trainer.global_rank} of {trainer.world_size}: {trainer.global_step} steps on {model.device}, "
    f"weights {hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:8]}, "
    f"accuracy={measured['accuracy']:.3f}",
    flush=True,
)
if trainer.is_global_zero:
    torch.save(model.state_dict(), Path(os.environ["SM_MODEL_DIR"], "model.pt"))
