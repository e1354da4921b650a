"""Fit a line with DeepSpeed: ZeRO stage 1 keeps each rank's share of the optimizer's state.

cloudtrain submit train.yaml
"""

from __future__ import annotations

import hashlib
import os

import deepspeed
import torch
from deepspeed import comm
from torch.utils.data import TensorDataset

torch.manual_seed(0)
x = torch.randn(512, 3)
y = x @ torch.tensor([[1.0], [-2.0], [3.0]])
config = {
    "train_micro_batch_size_per_gpu": 16,
    "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
}
comm.init_distributed()
torch.manual_seed(
    comm.get_rank()
)  # other initial weights on each rank, until initialize() shares those of rank 0
model = torch.nn.Linear(3, 1)
engine, _, loader, _ = deepspeed.initialize(
    model=model, model_parameters=list(model.parameters()), training_data=TensorDataset(x, y), config=config
)

rows = 0
for _ in range(8):
    for inputs, targets in loader:
        inputs, targets = inputs.to(engine.device), targets.to(engine.device)
        engine.backward(torch.nn.functional.mse_loss(engine(inputs), targets))
        engine.step()
        rows += len(inputs)

total = torch.tensor(rows, device=engine.device)
comm.all_reduce(total)
weights = torch.cat([value.detach().cpu().flatten() for value in model.parameters()])
print(
    f"rank {comm.get_rank()} of {comm.get_world_size()}: {rows} of {total} rows on {engine.device}, "
    f"weights {[round(value, 3) for value in weights.tolist()]} "
    f"{hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:8]}",
    flush=True,
)
engine.save_checkpoint(os.path.join(os.environ["SM_MODEL_DIR"], "checkpoint"))  # every rank writes its share
comm.destroy_process_group()
