"""Fit a linear model to the rows of train.csv with PyTorch and Horovod's API, on any number of ranks.

    cloudtrain submit train.yaml

Horovod need not be installed. Replace the data and the model by your own.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import horovod.torch as hvd
import numpy as np
import torch

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

model = torch.nn.Linear(rows.shape[1] - 1, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

for epoch in range(1, arguments.epochs + 1):
    for batch in own[torch.randperm(len(own))].split(8):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch[:, :-1]), batch[:, -1:])
        loss.backward()
        optimizer.step()
    mean = hvd.allreduce(loss.detach(), name="loss")
    if hvd.rank() == 0:
        print(f"epoch {epoch}: loss={mean.item():.4f}", flush=True)

if hvd.rank() == 0:
    torch.save(model.state_dict(), arguments.model_dir / "model.pt")
