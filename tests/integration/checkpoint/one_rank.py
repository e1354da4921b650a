"""Trains one rank without a job, saves a checkpoint and restores it: ``one_rank.py FOLDER``."""

import sys
from pathlib import Path

import torch

import cloudtrain.distributed.torch as hvd
from cloudtrain import environment
from cloudtrain.checkpoint import Checkpointer

folder = Path(sys.argv[1]).as_uri()
hvd.init()
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
model(torch.ones(2, 3)).sum().backward()
optimizer.step()
assert environment.preemption() is None
with Checkpointer(folder) as checkpointer:
    checkpointer.save(1, model.state_dict())
with Checkpointer(folder) as checkpointer:
    restored = checkpointer.restore()
assert restored
assert torch.equal(restored.state["weight"], model.weight)
print(sys.platform, hvd.size(), restored.step)
