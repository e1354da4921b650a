"""FSDP2 model and Adam, saved on some ranks and gone on with on others.

python fsdp2.py save|resume URI REFERENCE [--replicas N]

``save`` trains, saves, and goes on; rank 0 writes the full state and the losses after it to REFERENCE.
``resume`` begins with other weights, restores, compares each bit, goes on, and compares the losses.
"""

from __future__ import annotations

import argparse
import copy
import math
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from cloudtrain.checkpoint import Checkpointer

STEP = 4


def build(seed: int, replicas: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    # Neither 7 nor 3 divides by the number of ranks, and some ranks have nothing of the last layer.
    model = nn.Sequential(nn.Linear(10, 7), nn.Tanh(), nn.LayerNorm(7), nn.Linear(7, 3)).double()
    size = dist.get_world_size()
    mesh = (
        init_device_mesh("cpu", (replicas, size // replicas), mesh_dim_names=("replica", "shard"))
        if replicas > 1
        else init_device_mesh("cpu", (size,))
    )
    for layer in (model[0], model[3]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> list[float]:
    losses = []
    for step in steps:
        batch = torch.randn(8, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        loss = (model(batch) - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def sharded_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))


def full_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    return get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def save(uri: str, reference: str, replicas: int) -> None:
    model, optimizer = build(0, replicas)
    train(model, optimizer, range(1, STEP + 1))
    checkpointer = Checkpointer(uri, sharded=True)
    checkpointer.save(STEP, sharded_state(model, optimizer), {"loss": 0.5})
    full = copy.deepcopy(full_state(model, optimizer))  # while the save goes on
    losses = train(model, optimizer, range(STEP + 1, STEP + 4))
    if dist.get_rank() == 0:
        torch.save({"full": full, "losses": losses}, reference)
    checkpointer.close()


def resume(uri: str, reference: str, replicas: int) -> None:
    model, optimizer = build(dist.get_world_size(), replicas)
    state = sharded_state(model, optimizer)
    checkpoint = Checkpointer(uri, sharded=True).restore(into=state)
    assert checkpoint is not None
    assert checkpoint.step == STEP and checkpoint.metrics == {"loss": 0.5}
    set_state_dict(
        model,
        optimizer,
        model_state_dict=checkpoint.state["model"],
        optim_state_dict=checkpoint.state["optimizer"],
    )
    expected = torch.load(reference, weights_only=False)
    full = full_state(model, optimizer)
    if dist.get_rank() == 0:  # the others have none of it
        compare(full, expected["full"])
    losses = train(model, optimizer, range(STEP + 1, STEP + 4))
    # Sums over another number of ranks round in another way.
    assert all(map(math.isclose, losses, expected["losses"])), (losses, expected["losses"])


def compare(left: Any, right: Any) -> None:
    """Bit for bit."""
    assert type(left) is type(right), (left, right)
    if isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            compare(left[key], right[key])
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for pair in zip(left, right, strict=True):
            compare(*pair)
    elif isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype and torch.equal(left, right)
    else:
        assert left == right


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["save", "resume"])
    parser.add_argument("uri")
    parser.add_argument("reference")
    parser.add_argument("--replicas", type=int, default=1)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    {"save": save, "resume": resume}[arguments.what](arguments.uri, arguments.reference, arguments.replicas)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
