"""A script for Horovod trains the same model with the real one, with cloudtrain's, and in one process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hosts_job import Launch, StartJob

SCRIPT = """
import os
import torch
import horovod.torch as hvd

hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size(), momentum=0.9)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
targets = inputs.sum(1, keepdim=True)
own = slice(hvd.rank(), None, hvd.size())
for step in range(20):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs[own]), targets[own])
    loss.backward()
    optimizer.step()
    mean = hvd.allreduce(loss.detach(), name="loss")
    if hvd.rank() == 0:
        print(f"step {step}: loss {mean.item():.4f}", flush=True)
state = {**model.state_dict(), "loss": mean}
torch.save(state, f"{os.environ['SM_OUTPUT_DATA_DIR']}/rank-{hvd.rank()}.pt")
"""


def train_in_one_process() -> dict[str, torch.Tensor]:
    """The same without Horovod: the mean of the gradients of four equal shards is the gradient of all data."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.04, momentum=0.9)
    inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    loss = torch.zeros(())
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
    return {**model.state_dict(), "loss": loss.detach()}


@pytest.mark.parametrize("implementation", ["horovod", "cloudtrain"])
def test_the_weights_are_those_of_one_process(
    start_job: StartJob, horovod: Callable[[str], Launch], implementation: str
) -> None:
    job = start_job(SCRIPT, horovod(implementation))
    assert job.wait(120) == [0, 0], job.output()
    expected = train_in_one_process()
    files = [path for part in job.parts for path in part.paths.output_data.iterdir()]
    assert len(files) == 4
    for path in files:
        torch.testing.assert_close(torch.load(path), expected, rtol=1e-4, atol=1e-6)
