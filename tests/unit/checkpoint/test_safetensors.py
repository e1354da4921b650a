"""The safetensors library can read the files, and tensors of all kinds survive bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from checkpoint_trees import same

from cloudtrain.checkpoint.format import tensor_files
from cloudtrain.checkpoint.tensors.framework import framework_named
from cloudtrain.errors import CheckpointError

torch_tensors, numpy_arrays = framework_named("torch"), framework_named("numpy")
BITS = torch.arange(48, dtype=torch.uint8)
TORCH_DTYPES = [
    torch.bool, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.uint16, torch.uint32, torch.uint64,
    torch.float16, torch.float32, torch.float64, torch.bfloat16,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64,
]  # fmt: skip
RAW_DTYPES = [torch.complex128, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]
NUMPY_DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


def tensor_of(dtype: torch.dtype) -> torch.Tensor:
    return (BITS % 2).bool() if dtype is torch.bool else BITS.view(dtype)


def bytes_of(framework: Any, value: Any) -> memoryview:
    """The elements as bytes, as in a snapshot."""
    spec = framework.spec(value)
    memory = memoryview(bytearray(spec.nbytes))
    framework.copy([value], [framework.within(spec, memory)])()
    return memory


def file_of(tensors: dict[str, torch.Tensor]) -> bytes:
    header = tensor_files.header((name, torch_tensors.spec(tensor)) for name, tensor in tensors.items())
    return b"".join([header, *(bytes_of(torch_tensors, tensor) for tensor in tensors.values())])


def through_bytes(framework: Any, value: Any) -> Any:
    target = framework.empty(framework.spec(value))
    memory = framework.memory(target)
    assert memory is not None
    memory[:] = bytes_of(framework, value)
    return target


def test_the_library_reads_the_files() -> None:
    tensors = {str(dtype): tensor_of(dtype) for dtype in TORCH_DTYPES}
    tensors["0-d"] = torch.tensor(1.5)
    tensors["empty"] = torch.empty(0, 3)
    read = safetensors.torch.load(file_of(tensors))
    assert sorted(read) == sorted(tensors)
    for name, tensor in tensors.items():
        assert same(read[name], tensor), name


@pytest.mark.parametrize("dtype", TORCH_DTYPES + RAW_DTYPES, ids=str)
def test_torch_round_trip(dtype: torch.dtype) -> None:
    tensor = tensor_of(dtype)
    assert same(through_bytes(torch_tensors, tensor), tensor)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_numpy_round_trip(dtype: str) -> None:
    array = np.arange(48, dtype=np.uint8).view(dtype).copy() if dtype != "?" else np.array([True, False])
    assert same(through_bytes(numpy_arrays, array), array)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(3.0),
        torch.empty(0),
        torch.empty(2, 0, 3, dtype=torch.bfloat16),
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(12.0)[::3],
        torch.ones(1).expand(4),
        torch.tensor([1 + 2j, 3 - 4j]).conj(),
        torch.tensor([1 + 2j]).conj().imag,
        torch.nn.Parameter(torch.ones(2)).detach(),
    ],
    ids=[
        "0-d",
        "empty",
        "empty 3-d",
        "transposed",
        "strided",
        "expanded",
        "conjugate",
        "negative",
        "parameter",
    ],
)
def test_shapes_and_views_of_torch(tensor: torch.Tensor) -> None:
    assert same(through_bytes(torch_tensors, tensor), tensor)


def test_a_parameter_is_restored_as_a_plain_tensor() -> None:
    restored = through_bytes(torch_tensors, torch.nn.Parameter(torch.ones(2)))
    assert type(restored) is torch.Tensor
    assert not restored.requires_grad


@pytest.mark.parametrize(
    "array",
    [
        np.array(3.0),
        np.empty((2, 0)),
        np.arange(12).reshape(3, 4).T,
        np.arange(9)[::-2],
        np.arange(9)[4::9],
        np.asfortranarray(np.eye(3)),
    ],
    ids=["0-d", "empty", "transposed", "reversed", "single", "fortran"],
)
def test_shapes_and_views_of_numpy(array: np.ndarray[Any, Any]) -> None:
    assert same(through_bytes(numpy_arrays, array), array)


def test_big_endian_arrays_are_restored_in_native_order() -> None:
    assert same(through_bytes(numpy_arrays, np.arange(5, dtype=">i4")), np.arange(5, dtype="<i4"))


def test_a_dtype_that_torch_lacks() -> None:
    spec = torch_tensors.spec(torch.ones(1))
    later = type(spec)(spec.framework, "float7_later", 4, (1,))
    with pytest.raises(CheckpointError, match="float7_later, which torch"):
        torch_tensors.empty(later)
