"""With compiled blocks, buckets are launched while the backward pass still runs; with a compiled model, after it.

The backend ``aot_eager`` makes the same forward and backward passes as the default one, without a C++ compiler.
"""

from __future__ import annotations

import pytest
import torch
from fake_ranks import fake_ranks
from torch import nn

import cloudtrain.distributed.torch as hvd
from cloudtrain.distributed.torch._gradients.buckets import Bucket


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            values = block(values)
        return values


@pytest.mark.parametrize("by_block", [True, False], ids=["blocks", "model"])
def test_when_buckets_are_launched(by_block: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "1")  # a bucket for each parameter
    launches: list[str] = []
    launch = Bucket.launch

    def recorded(bucket: Bucket, *arguments: object) -> None:
        launches.append(bucket.slots[0].name)
        launch(bucket, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Bucket, "launch", recorded)
    model = Model()
    names = [name for name, _ in model.named_parameters()]
    for module in model.blocks if by_block else [model]:
        module.compile(backend="aot_eager")
    assert [name for name, _ in model.named_parameters()] == names
    with fake_ranks(torch.device("cpu")):
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
        )
        before_the_first_block: list[int] = []
        first = model.blocks[0][0].weight  # type: ignore[index]
        first.register_hook(lambda _: before_the_first_block.append(len(launches)))
        for _ in range(2):  # the first step creates the buckets
            launches.clear()
            optimizer.zero_grad()
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()
    assert sorted(launches) == sorted(names)
    launched = before_the_first_block[-1]
    assert launched >= 4 if by_block else launched == 0
