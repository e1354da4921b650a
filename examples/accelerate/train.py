"""Fit a line with Accelerate, which `accelerate launch` starts on every host.

cloudtrain submit train.yaml
"""

from __future__ import annotations

import os

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator()
torch.manual_seed(0)  # the same data on all ranks: prepare() gives each of them its share
x = torch.randn(512, 3)
y = x @ torch.tensor([[1.0], [-2.0], [3.0]])
torch.manual_seed(
    accelerator.process_index
)  # other initial weights on each rank, until prepare() shares those of rank 0
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(
    model, optimizer, DataLoader(TensorDataset(x, y), batch_size=16)
)

rows = 0
for _ in range(8):
    for inputs, targets in loader:
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.mse_loss(model(inputs), targets))
        optimizer.step()
        rows += len(inputs)

weights = torch.cat([value.detach().flatten() for value in model.parameters()])
difference = (accelerator.gather(weights[None]) - weights).abs().max()
total = accelerator.reduce(torch.tensor(rows, device=accelerator.device))
print(
    f"rank {accelerator.process_index} of {accelerator.num_processes}: {rows} of {total} rows on {accelerator.device}, "
    f"weights {[round(value, 3) for value in weights.tolist()]}, difference {difference:.0e}",
    flush=True,
)
if accelerator.is_main_process:
    torch.save(
        accelerator.unwrap_model(model).state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt")
    )
accelerator.end_training()
