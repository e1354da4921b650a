"""How tensors are divided among the buckets of a broadcast."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cloudtrain.distributed.torch.functions import ON_GPU, buckets_of

MIB = 1 << 20


def sized(mib: float, dtype: torch.dtype = torch.float32, device: str = "meta") -> Tensor:
    return torch.empty(int(mib * MIB) // dtype.itemsize, dtype=dtype, device=device)


@pytest.mark.parametrize(
    ("tensors", "wanted"),
    [
        ({}, []),
        ({"a": sized(1), "b": sized(2)}, [["a", "b"]]),
        ({"a": sized(15), "b": sized(15), "c": sized(3), "d": sized(1)}, [["a", "b"], ["c", "d"]]),
        ({"a": sized(1), "large": sized(16), "b": sized(1)}, [["a", "b"], ["large"]]),
        ({"a": sized(1), "n": sized(1, torch.int64), "b": sized(1)}, [["a", "b"], ["n"]]),
        ({"a": sized(1), "n": sized(0, device="cpu"), "b": sized(1)}, [["a", "b"], ["n"]]),
        ({"a": sized(1), "b": torch.eye(3, device="cpu").to_sparse()}, [["a"], ["b"]]),
        ({"a": sized(0), "b": sized(0)}, [["a", "b"]]),
        ({"a": sized(1, device="cpu"), "b": sized(1)}, [["a"], ["b"]]),
        ({name: sized(0.9, device="cpu") for name in "abcdef"}, [["a", "b", "c", "d"], ["e", "f"]]),
    ],
)
def test_buckets(tensors: dict[str, Tensor], wanted: list[list[str]]) -> None:
    assert [[name for name, _ in bucket] for bucket in buckets_of(tensors.items())] == wanted


def test_no_bucket_is_larger_than_the_limit() -> None:
    tensors = [(str(number), sized(0.1 + number % 15)) for number in range(100)]
    buckets = buckets_of(tensors)
    sizes = [sum(tensor.nbytes for _, tensor in bucket) for bucket in buckets]
    assert max(sizes) <= ON_GPU.bucket_bytes
    assert len(buckets) <= 2 + sum(sizes) / (ON_GPU.bucket_bytes - ON_GPU.large_bytes)
    assert sorted(name for bucket in buckets for name, _ in bucket) == sorted(name for name, _ in tensors)
