"""A model and Adam under FSDP, saved on one number of ranks and resumed on another.

python training.py save|resume URI REFERENCE [--wrap WRAP]

``save`` trains, saves, and continues; rank 0 writes the full state and the losses after it to REFERENCE.
``resume`` starts with other weights, restores, compares each bit, continues, and compares the losses.
"""

from __future__ import annotations

import argparse
import itertools
import math
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.tensor import DTensor

from cloudtrain.checkpoint import Checkpointer

STEP = 4


def build(seed: int, wrap: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    # Neither 7 nor 3 is divisible by the number of ranks, and some ranks have no part of the last layer.
    model = nn.Sequential(nn.Linear(10, 7), nn.Tanh(), nn.LayerNorm(7), nn.Linear(7, 3)).double()
    model = WRAPS[wrap](model)
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def fsdp2(model: nn.Sequential) -> nn.Module:
    return _fully_sharded(model, init_device_mesh("cpu", (dist.get_world_size(),)))


def hybrid(model: nn.Sequential) -> nn.Module:
    """Two replicas."""
    shape = (2, dist.get_world_size() // 2)
    return _fully_sharded(model, init_device_mesh("cpu", shape, mesh_dim_names=("replica", "shard")))


def rows(model: nn.Sequential) -> nn.Module:
    """Two replicas of which the tensors have no record: each is sharded over a separate mesh."""
    shape = (2, dist.get_world_size() // 2)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replica", "shard"))
    return _fully_sharded(model, mesh["shard"])


def fsdp1(model: nn.Sequential) -> nn.Module:
    return FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))


def hybrid1(model: nn.Sequential) -> nn.Module:
    """Two replicas."""
    half = dist.get_world_size() // 2
    shards = [dist.new_group(list(range(begin, begin + half))) for begin in (0, half)]
    replicas = [dist.new_group([rank, rank + half]) for rank in range(half)]
    rank = dist.get_rank()
    return FullyShardedDataParallel(
        model,
        process_group=(shards[rank // half], replicas[rank % half]),
        sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        use_orig_params=True,
        device_id=torch.device("cpu"),
    )


WRAPS = {wrap.__name__: wrap for wrap in (fsdp2, hybrid, rows, fsdp1, hybrid1)}


def _fully_sharded(model: nn.Sequential, mesh: DeviceMesh) -> nn.Module:
    for layer in (model[0], model[3]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


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


def whole(tree: Any) -> Any:
    """A copy of the state with whole tensors, gathered from all ranks."""
    if isinstance(tree, dict):
        return {key: whole(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [whole(value) for value in tree]
    if isinstance(tree, DTensor):
        return tree.full_tensor().clone()
    if isinstance(tree, ShardedTensor):
        shards: list[Any] = [None] * dist.get_world_size()
        mine = [(shard.metadata.shard_offsets, shard.tensor) for shard in tree.local_shards()]
        dist.all_gather_object(shards, mine)
        full = torch.empty(tuple(tree.metadata().size), dtype=torch.float64)
        for offsets, tensor in itertools.chain(*shards):
            places = zip(offsets, tensor.shape, strict=True)
            full[tuple(slice(begin, begin + size) for begin, size in places)] = tensor
        return full
    return tree.detach().clone() if isinstance(tree, torch.Tensor) else tree


def save(uri: str, reference: str, wrap: str) -> None:
    model, optimizer = build(0, wrap)
    train(model, optimizer, range(1, STEP + 1))
    checkpointer = Checkpointer(uri, sharded=True)
    checkpointer.save(STEP, sharded_state(model, optimizer), {"loss": 0.5})
    full = whole(sharded_state(model, optimizer))  # while the save is in progress
    losses = train(model, optimizer, range(STEP + 1, STEP + 4))
    if dist.get_rank() == 0:
        torch.save({"full": full, "losses": losses}, reference)
    checkpointer.close()


def resume(uri: str, reference: str, wrap: str) -> None:
    model, optimizer = build(1, wrap)
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
    compare(whole(sharded_state(model, optimizer)), expected["full"])
    losses = train(model, optimizer, range(STEP + 1, STEP + 4))
    # Sums over a different number of ranks round differently.
    assert all(map(math.isclose, losses, expected["losses"])), (losses, expected["losses"])


def compare(left: Any, right: Any) -> None:
    """Whether they are bitwise equal."""
    assert type(left) is type(right), (left, right)
    if isinstance(left, dict):
        assert left.keys() == right.keys()
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
    parser.add_argument("--wrap", choices=WRAPS, default="fsdp2")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    {"save": save, "resume": resume}[arguments.what](arguments.uri, arguments.reference, arguments.wrap)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
