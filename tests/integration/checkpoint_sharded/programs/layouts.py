"""Tensors sharded in every way, saved with one sharding and restored with another.

python layouts.py save|restore URI
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import cloudtrain.checkpoint
from cloudtrain.checkpoint import Checkpointer

STEP = 7


def whole() -> dict[str, Any]:
    """The whole tensors of the state."""
    torch.manual_seed(0)
    return {
        "uneven": torch.randn(7, 5),
        "columns": torch.randn(4, 6).T,  # not contiguous
        "grid": torch.randn(5, 6),
        "hybrid": torch.randn(6, 3, dtype=torch.float64),
        "strided": torch.randn(10, 3),
        "few": torch.randn(2, 3),  # fewer rows than ranks
        "scalar": torch.tensor(3.5),
        "nothing": torch.empty(0, 4),
        "half": torch.randn(9).bfloat16(),
        "complex": torch.randn(5, 2, dtype=torch.complex64),
        "plain": torch.randn(3, 3),
        "numpy": np.arange(22, dtype=np.int16).reshape(11, 2),
        "array": np.arange(5.0),
    }


def spread_for_saving(full: dict[str, Any]) -> dict[str, Any]:
    """On 4 ranks."""
    line, grid = init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    spread = {name: distribute_tensor(full[name], line, [Shard(0)]) for name in ("uneven", "few", "nothing")}
    return {
        **spread,
        "columns": distribute_tensor(full["columns"], line, [Shard(1)]),
        "grid": distribute_tensor(full["grid"], grid, [Shard(0), Shard(1)]),
        "hybrid": distribute_tensor(full["hybrid"], grid, [Replicate(), Shard(0)]),
        "strided": strided(full["strided"], grid),
        "scalar": distribute_tensor(full["scalar"], line, [Replicate()]),
        "half": distribute_tensor(full["half"], line, [Shard(0)]),
        "complex": distribute_tensor(full["complex"], grid, [Shard(0), Replicate()]),
        "plain": full["plain"] if dist.get_rank() == 0 else torch.zeros(1),  # rank 0's counts
        "tied": spread["uneven"],
        "numpy": numpy_rows(full["numpy"], [0, 5, 5, 6, 11]),
        "array": full["array"],
    }


def spread_for_restoring(full: dict[str, Any]) -> dict[str, Any]:
    """On 3 ranks, with zeros."""
    line = init_device_mesh("cpu", (3,))
    placements = {
        "uneven": Shard(1),
        "columns": Shard(0),
        "grid": Shard(1),
        "few": Shard(0),
        "scalar": Replicate(),
    }
    zeros = {name: torch.zeros_like(value) for name, value in full.items() if isinstance(value, torch.Tensor)}
    spread = {
        name: distribute_tensor(value, line, [placements.get(name, Shard(0))])
        for name, value in zeros.items()
    }
    return {
        **spread,
        "plain": zeros["plain"],
        "hybrid": zeros["hybrid"],  # an unsharded tensor in the place of a sharded one
        "tied": distribute_tensor(zeros["uneven"], line, [Replicate()]),
        "numpy": numpy_rows(np.zeros_like(full["numpy"]), [0, 2, 9, 11]),
        "array": np.zeros(5),
    }


def strided(full: torch.Tensor, mesh: DeviceMesh) -> DTensor:
    """A weight under tensor parallelism and FSDP: its rows are sharded twice, the inner dimension of the mesh first."""
    layer = torch.nn.Linear(3, 10, bias=False)
    with torch.no_grad():
        layer.weight.copy_(full)
    parallelize_module(layer, mesh["tp"], ColwiseParallel())
    fully_shard(layer, mesh=mesh["dp"])
    weight = layer.state_dict()["weight"]
    assert any("Strided" in repr(how) for how in weight.placements), weight.placements
    return weight


def numpy_rows(full: np.ndarray[Any, Any], begins: list[int]) -> cloudtrain.checkpoint.Shard:
    begin, end = begins[dist.get_rank()], begins[dist.get_rank() + 1]
    return cloudtrain.checkpoint.Shard(full[begin:end].copy(), full.shape, (begin, 0))


def save(uri: str) -> None:
    full = whole()
    with Checkpointer(uri, sharded=True) as checkpointer:
        assert checkpointer.save(STEP, {"tensors": spread_for_saving(full), "epoch": dist.get_rank()})
    with Checkpointer(f"{uri}-of-one") as checkpointer:  # where nothing is sharded
        checkpointer.save(STEP, {"tensors": {**full, "tied": full["uneven"]}, "epoch": 0})


def restore(uri: str) -> None:
    full = whole()
    full["tied"] = full["uneven"]
    for place, sharded in ((uri, True), (f"{uri}-of-one", True), (uri, False)):
        checkpointer = Checkpointer(place, sharded=sharded)
        into = spread_for_restoring(whole())
        for target in ({"tensors": into}, None):
            checkpoint = checkpointer.restore(into=target)
            assert checkpoint is not None and checkpoint.step == STEP
            assert checkpoint.state["epoch"] == 0
            restored = checkpoint.state["tensors"]
            assert restored.keys() == full.keys()
            for name, value in restored.items():
                compare(name, value, full[name])
                if target is not None:
                    compare(name, into[name], full[name])


def compare(name: str, value: Any, full: Any) -> None:
    """Bitwise equality, on every rank."""
    if isinstance(value, DTensor):
        value = value.full_tensor()
    if isinstance(value, cloudtrain.checkpoint.Shard):
        begin = value.offsets[0]
        value, full = value.array, full[begin : begin + len(value.array)]
    assert type(value) is type(full), name
    assert (value.dtype, value.shape) == (full.dtype, full.shape), name
    assert (value == full).all(), name


if __name__ == "__main__":
    dist.init_process_group("gloo")
    {"save": save, "restore": restore}[sys.argv[1]](sys.argv[2])
    dist.destroy_process_group()
