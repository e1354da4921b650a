"""Torch tensors as bytes. See `cloudtrain.checkpoint._framework.Framework`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from cloudtrain.checkpoint._errors import Unsupported
from cloudtrain.checkpoint._framework import TensorSpec
from cloudtrain.errors import CheckpointError

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def owns(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def spec(value: torch.Tensor) -> TensorSpec:
    # A subclass may hold more than its elements, or only this rank's part of them.
    if type(value) not in _PLAIN:
        raise Unsupported(f"a {type(value).__name__}, not a plain tensor")
    if value.layout is not torch.strided or value.is_quantized or value.is_meta:
        raise Unsupported("a sparse, quantized or meta tensor")
    return _spec(value.dtype, value.shape)


def identity(value: torch.Tensor) -> object:
    address = value.data_ptr()
    if not address:
        return None
    layout = (value.dtype, value.shape, value.stride(), value.is_conj(), value.is_neg())
    return (address, value.device, *layout)


def address(value: torch.Tensor) -> int | None:
    plain = value.is_cpu and value.is_contiguous() and not value.is_conj() and not value.is_neg()
    return value.data_ptr() if plain else None  # of an empty one 0


def on_device(value: torch.Tensor) -> bool:
    return value.is_cuda


def pinned(nbytes: int) -> memoryview:
    return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True).numpy().data


def empty(spec: TensorSpec) -> torch.Tensor:
    return torch.empty(spec.shape, dtype=_dtype(spec))


def within(spec: TensorSpec, memory: memoryview) -> torch.Tensor:
    if not memory.nbytes:
        return empty(spec)
    return torch.frombuffer(memory, dtype=_dtype(spec)).view(spec.shape)


def memory(value: torch.Tensor) -> memoryview | None:
    value = value.detach()
    if value.device.type != "cpu" or not value.is_contiguous() or value.is_conj() or value.is_neg():
        return None
    # Not reshape: it leaves the stride of a single element, which view refuses.
    return value.as_strided((value.numel(),), (1,)).view(torch.uint8).numpy().data


@torch.no_grad()
def copy(sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]) -> Callable[[], None]:
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


def put(source: torch.Tensor, target: torch.Tensor, index: tuple[Any, ...]) -> None:
    copy([source], [target[index]])()


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@functools.lru_cache(maxsize=4096)  # states have thousands of tensors of a few shapes
def _spec(dtype: torch.dtype, shape: torch.Size) -> TensorSpec:
    return TensorSpec("torch", str(dtype).replace("torch.", ""), dtype.itemsize, tuple(shape))


def _dtype(spec: TensorSpec) -> torch.dtype:
    dtype = getattr(torch, spec.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise CheckpointError(
            f"the checkpoint holds a tensor of dtype {spec.dtype}, which torch {torch.__version__} lacks",
            hint="Upgrade torch to restore it.",
        )
    return dtype
