"""An elastic training whose hosts are taken back once, and the check that no step was lost or repeated."""

from __future__ import annotations

import re

import pytest

SCRIPT = """
    import os, time
    import torch
    import cloudtrain.distributed.torch as hvd
    from cloudtrain.distributed.torch import elastic

    hvd.init()
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    @elastic.run
    def train(state):
        print("begins", hvd.rank(), hvd.size(), os.environ["SM_CURRENT_HOST"], "at", state.step, flush=True)
        last = state.step + 3 if state.step else 10_000
        for step in range(state.step, last):
            optimizer.zero_grad()
            model(torch.ones(1, 1)).sum().backward()
            optimizer.step()
            if hvd.rank() == 0:
                print("step", step, "weight", model.weight.item(), flush=True)
            state.step = step + 1
            state.commit()
            time.sleep(0.05)

    train(elastic.TorchState(model, optimizer, step=0))
    hvd.shutdown()
"""
"""It ends some steps after it was continued."""


def check_each_step_once(log: str) -> None:
    """Also that each follows from the one before, with the momentum of it."""
    steps = [int(step) for step in re.findall(r"\] step (\d+) weight", log)]
    assert steps == [*range(steps[-1] + 1)], f"each step once\n{log}"
    weights = [float(weight) for weight in re.findall(r"\] step \d+ weight (\S+)", log)]
    speed, expected = 1.0, weights[0]
    for weight in weights[1:]:
        speed = 0.9 * speed + 1.0
        expected -= 0.1 * speed
        assert weight == pytest.approx(expected, rel=1e-4, abs=1e-3)
