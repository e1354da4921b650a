"""What a rank holds of torch's sharded tensors: DTensor (FSDP2, tensor parallel) and ShardedTensor (FSDP1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from cloudtrain.checkpoint import _torch
from cloudtrain.checkpoint._boxes import Box
from cloudtrain.checkpoint._errors import Unsupported
from cloudtrain.checkpoint._framework import TensorSpec
from cloudtrain.checkpoint._held import Held


def held(value: torch.Tensor) -> Held | None:
    """None where ``value`` is no sharded tensor. Raises Unsupported for one whose elements are not all there."""
    if hasattr(value, "__create_chunk_list__") and hasattr(value, "device_mesh"):
        return _held_dtensor(value)
    if hasattr(value, "local_shards"):
        return _held_sharded_tensor(value)
    return None


def _held_dtensor(value: Any) -> Held:
    if any(placement.is_partial() for placement in value.placements):
        raise Unsupported("a DTensor with a sum that is still to be made over the ranks")
    spec = _spec(value.dtype, value.shape)
    coordinate = value.device_mesh.get_coordinate()
    if coordinate is None:  # this rank is not in the mesh
        return Held(value, spec, _torch, (), owned=False)
    with torch.no_grad():
        local = value.to_local()
    # The protocol of torch.distributed.checkpoint: it knows uneven shards, and those of a strided order.
    chunks = value.__create_chunk_list__()
    first = all(place == 0 for place, how in zip(coordinate, value.placements) if how.is_replicate())
    # Each mesh holds the whole tensor. Meshes without rank 0 hold a copy of it.
    owned = first and 0 in value.device_mesh.mesh.flatten().tolist()
    return _held(value, spec, [(chunk.offsets, chunk.sizes, local) for chunk in chunks], owned)


def _held_sharded_tensor(value: Any) -> Held:
    about = value.metadata()  # the tensor's own attributes warn that it is out of date
    parts = [
        (shard.metadata.shard_offsets, shard.metadata.shard_sizes, shard.tensor)
        for shard in value.local_shards()
    ]
    owned = 0 in dist.get_process_group_ranks(value._process_group)
    return _held(value, _spec(about.tensor_properties.dtype, about.size), parts, owned)


def _held(
    value: Any, spec: TensorSpec, parts: list[tuple[Iterable[int], Iterable[int], Any]], owned: bool
) -> Held:
    boxes = [(Box(tuple(offsets), tuple(shape)), local) for offsets, shape, local in parts]
    for box, local in boxes:
        if _torch.spec(local).shape != box.shape:  # such as one that is gathered at the moment
            raise Unsupported(f"a {type(value).__name__} whose part here has the shape {list(local.shape)}")
    return Held(value, spec, _torch, tuple((box, local) for box, local in boxes if box.size), owned)


def _spec(dtype: torch.dtype, shape: Iterable[int]) -> TensorSpec:
    return TensorSpec("torch", str(dtype).replace("torch.", ""), dtype.itemsize, tuple(shape))
