"""Torch tensors as bytes.

Sharded tensors are DTensor (FSDP2, tensor parallelism) and ShardedTensor (FSDP1).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from cloudtrain.checkpoint.errors import Unsupported
from cloudtrain.checkpoint.tensors.chunks import Chunk
from cloudtrain.checkpoint.tensors.framework import Framework, LocalShards, TensorSpec, framework_named
from cloudtrain.errors import CheckpointError

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class TorchTensors(Framework):
    def owns(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def spec(self, value: torch.Tensor) -> TensorSpec:
        # A subclass may hold more than its elements, or only this rank's part of them.
        if type(value) not in _PLAIN:
            raise Unsupported(f"a {type(value).__name__}, not a plain tensor")
        if value.layout is not torch.strided or value.is_quantized or value.is_meta:
            raise Unsupported("a sparse, quantized or meta tensor")
        return _spec(value.dtype, value.shape)

    def identity(self, value: torch.Tensor) -> object:
        address = value.data_ptr()
        if not address:
            return None
        layout = (value.dtype, value.shape, value.stride(), value.is_conj(), value.is_neg())
        return (address, value.device, *layout)

    def address(self, value: torch.Tensor) -> int | None:
        plain = value.is_cpu and value.is_contiguous() and not value.is_conj() and not value.is_neg()
        return value.data_ptr() if plain else None  # 0 for an empty tensor

    def on_device(self, value: torch.Tensor) -> bool:
        return value.is_cuda

    def pinned(self, memory: mmap.mmap) -> memoryview:
        return pinned(memory)

    def empty(self, spec: TensorSpec) -> torch.Tensor:
        return torch.empty(spec.shape, dtype=_dtype(spec))

    def within(self, spec: TensorSpec, memory: memoryview) -> torch.Tensor:
        if not memory.nbytes:
            return self.empty(spec)
        return torch.frombuffer(memory, dtype=_dtype(spec)).view(spec.shape)

    def memory(self, value: torch.Tensor) -> memoryview | None:
        value = value.detach()
        if value.device.type != "cpu" or not value.is_contiguous() or value.is_conj() or value.is_neg():
            return None
        # Not reshape: it keeps the stride of a single element, which view rejects.
        return value.as_strided((value.numel(),), (1,)).view(torch.uint8).numpy().data

    @torch.no_grad()
    def copy(self, sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]) -> Callable[[], None]:
        devices = {source.device for source in sources if source.is_cuda}
        streams = {device: _side_stream(device) for device in devices}
        with contextlib.ExitStack() as stack:
            for device, stream in streams.items():
                stream.wait_stream(torch.cuda.current_stream(device))
                stack.enter_context(torch.cuda.stream(stream))
            for source, target in zip(sources, targets):
                target.copy_(source, non_blocking=source.is_cuda)
        events = [stream.record_event() for stream in streams.values()]
        for device, stream in streams.items():
            torch.cuda.current_stream(device).wait_stream(stream)

        def wait() -> None:
            for event in events:
                event.synchronize()

        return wait

    def put(self, source: torch.Tensor, target: torch.Tensor, index: tuple[Any, ...]) -> None:
        self.copy([source], [target[index]])()

    def sharded(self, value: Any) -> LocalShards | None:
        if type(value) in _PLAIN or not isinstance(value, torch.Tensor):
            return None
        if hasattr(value, "__create_chunk_list__") and hasattr(value, "device_mesh"):
            return _from_dtensor(value)
        if hasattr(value, "local_shards"):
            return _from_sharded_tensor(value)
        return None


def pinned(memory: mmap.mmap) -> memoryview:
    """Lock ``memory``, so that GPUs copy to it directly; if it cannot be locked, warn.

    ``pin_memory`` of torch would round up to a power of two, and keep the memory after its last use.
    """
    nbytes = len(memory)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    code = int(runtime.cudaHostRegister(address, nbytes, 0))
    array = torch.frombuffer(memory, dtype=torch.uint8).numpy()
    if code:
        with contextlib.suppress(Exception):
            torch.zeros(1, device="cuda")  # CUDA reports the error once more, to the next kernel
        warnings.warn(
            f"{nbytes >> 20} MiB of host memory cannot be locked for checkpoints (CUDA error {code}): copies from "
            "the GPU take longer. Raise the limit of locked memory (ulimit -l), or the memory of the container.",
            stacklevel=2,
        )
    else:
        weakref.finalize(array, runtime.cudaHostUnregister, address).atexit = False
    return array.data


def _from_dtensor(value: Any) -> LocalShards:
    if any(placement.is_partial() for placement in value.placements):
        raise Unsupported("a DTensor with a pending sum over the ranks")
    whole = _spec(value.dtype, value.shape)
    coordinate = value.device_mesh.get_coordinate()
    if coordinate is None:  # this rank is not in the mesh
        return LocalShards(value, whole, framework_named("torch"), (), owned=False)
    with torch.no_grad():
        local = value.to_local()
    # The protocol of torch.distributed.checkpoint handles uneven and strided sharding.
    chunks = value.__create_chunk_list__()
    first = all(place == 0 for place, how in zip(coordinate, value.placements) if how.is_replicate())
    # Each mesh holds the whole tensor; a mesh without rank 0 holds a replica.
    owned = first and 0 in value.device_mesh.mesh.flatten().tolist()
    return _local_shards(value, whole, [(chunk.offsets, chunk.sizes, local) for chunk in chunks], owned)


def _from_sharded_tensor(value: Any) -> LocalShards:
    metadata = value.metadata()  # the tensor's own attributes raise a deprecation warning
    parts = [
        (shard.metadata.shard_offsets, shard.metadata.shard_sizes, shard.tensor)
        for shard in value.local_shards()
    ]
    owned = 0 in torch.distributed.get_process_group_ranks(value._process_group)
    return _local_shards(value, _spec(metadata.tensor_properties.dtype, metadata.size), parts, owned)


def _local_shards(
    value: Any, whole: TensorSpec, parts: list[tuple[Iterable[int], Iterable[int], Any]], owned: bool
) -> LocalShards:
    chunks = [(Chunk(tuple(offsets), tuple(shape)), local) for offsets, shape, local in parts]
    for chunk, local in chunks:
        if (
            framework_named("torch").spec(local).shape != chunk.shape
        ):  # for example while FSDP has it gathered
            raise Unsupported(f"a {type(value).__name__} whose local part has the shape {list(local.shape)}")
    present = tuple((chunk, local) for chunk, local in chunks if chunk.size)
    return LocalShards(value, whole, framework_named("torch"), present, owned)


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@functools.lru_cache(maxsize=4096)  # a state has thousands of tensors of a few shapes
def _spec(dtype: torch.dtype, shape: Iterable[int]) -> TensorSpec:
    return TensorSpec("torch", str(dtype).replace("torch.", ""), dtype.itemsize, tuple(shape))


def _dtype(spec: TensorSpec) -> torch.dtype:
    dtype = getattr(torch, spec.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise CheckpointError(
            f"the checkpoint holds a tensor of dtype {spec.dtype}, which torch {torch.__version__} lacks",
            hint="Upgrade torch to restore it.",
        )
    return dtype
