"""Fit a linear model to the rows of train.csv with PyTorch, on any number of ranks. It resumes after a restart.

    cloudtrain submit train.yaml
    python src/train.py             # one rank, without a job

Replace the data and the model by your own.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import torch

import cloudtrain
import cloudtrain.distributed.torch as hvd
from cloudtrain.checkpoint import Checkpointer

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--data", type=Path, default=os.environ.get("SM_CHANNEL_TRAIN", "data"))
parser.add_argument("--model-dir", type=Path, default=os.environ.get("SM_MODEL_DIR", "."))
arguments = parser.parse_args()

hvd.init()
device = torch.device("cuda", hvd.local_rank()) if torch.cuda.is_available() else torch.device("cpu")
rows = torch.tensor(np.loadtxt(arguments.data / "train.csv", delimiter=",", skiprows=1, dtype="float32"))
own = rows[hvd.rank() :: hvd.size()].to(device)  # each rank trains on its share of the rows

torch.manual_seed(0)
model = torch.nn.Linear(rows.shape[1] - 1, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr)
first = 1
with Checkpointer() as checkpointer:  # in the checkpoint_s3_uri of the job; without a job, in ./checkpoints
    checkpoint = checkpointer.restore()
    if checkpoint:
        model.load_state_dict(checkpoint.state["model"])
        first = checkpoint.step + 1
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    for epoch in range(first, arguments.epochs + 1):
        for batch in own[torch.randperm(len(own))].split(8):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(batch[:, :-1]), batch[:, -1:])
            loss.backward()
            optimizer.step()
        cloudtrain.log(step=epoch, total_steps=arguments.epochs, loss=loss)  # the mean of all ranks
        if hvd.rank() == 0:
            print(f"epoch {epoch}: loss={loss.item():.4f}", flush=True)
        checkpointer.save(epoch, {"model": model.state_dict()})

if hvd.rank() == 0:
    torch.save(model.state_dict(), arguments.model_dir / "model.pt")
