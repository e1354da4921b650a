"""Adasum of tensors over ranks, against its definition in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.distributed as dist
from _cases import raises, run, same_on_all_ranks

import cloudtrain.distributed.torch as hvd
from cloudtrain.distributed.torch import _adasum

SHAPES = [(5,), (3, 4), (), (0, 2), (1,), (2, 1, 7)]
DTYPES = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-6, torch.float64: 1e-14}
"""Types, and a few roundings of each, one for each level of the tree."""


def pair(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Maleki et al. 2020, equation 5."""
    dot, square_a, square_b = (a * b).sum(), (a * a).sum(), (b * b).sum()
    factor_a = 1 - dot / (2 * square_a) if square_a else 1
    factor_b = 1 - dot / (2 * square_b) if square_b else 1
    return factor_a * a + factor_b * b


def tree(vectors: list[np.ndarray]) -> np.ndarray:
    """Of neighbours; those beyond the largest power of two are folded in before."""
    power = 1 << (len(vectors).bit_length() - 1)
    for number, vector in enumerate(vectors[power:]):
        vectors[number] = pair(vectors[number], vector)
    vectors = vectors[:power]
    while len(vectors) > 1:
        vectors = [pair(a, b) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


def vectors_of(rank: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """They agree in part between ranks, as gradients do; one is zero on rank 1, one on all."""
    shared, own = torch.Generator().manual_seed(99), torch.Generator().manual_seed(rank)
    tensors = [torch.randn(shape, generator=shared) + torch.randn(shape, generator=own) for shape in SHAPES]
    if rank == 1:
        tensors[0].zero_()
    tensors[4].zero_()
    return [tensor.to(dtype) for tensor in tensors]


def wanted(ranks: Sequence[int], dtype: torch.dtype) -> list[np.ndarray]:
    columns = zip(*(vectors_of(rank, dtype) for rank in ranks), strict=True)
    return [tree([tensor.double().numpy() for tensor in column]) for column in columns]


def adasum_(tensors: Sequence[torch.Tensor]) -> None:
    _adasum.adasum_(tensors, dist.group.WORLD, range(hvd.size()))


def case_is_its_definition_for_each_tensor() -> None:
    for dtype, tolerance in DTYPES.items():
        tensors = vectors_of(hvd.rank(), dtype)
        adasum_(tensors)
        for tensor, reference in zip(tensors, wanted(range(hvd.size()), dtype), strict=True):
            assert tensor.dtype == dtype
            np.testing.assert_allclose(tensor.double().numpy(), reference, rtol=tolerance, atol=tolerance)
            assert same_on_all_ranks(tensor)


def case_one_tensor_alone() -> None:
    for number in range(len(SHAPES)):
        tensor = vectors_of(hvd.rank(), torch.float64)[number]
        adasum_([tensor])
        reference = wanted(range(hvd.size()), torch.float64)[number]
        np.testing.assert_allclose(tensor.numpy(), reference, rtol=1e-13, atol=1e-13)


def case_tensors_that_are_not_contiguous() -> None:
    tensor = vectors_of(hvd.rank(), torch.float64)[1]
    transposed, strided = tensor.clone().t(), torch.zeros(6, 4, dtype=torch.float64)[::2]
    strided.copy_(tensor)
    adasum_([transposed])
    adasum_([strided])
    reference = wanted(range(hvd.size()), torch.float64)[1]
    np.testing.assert_allclose(transposed.t().numpy(), reference, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(strided.numpy(), reference, rtol=1e-13, atol=1e-13)


def case_parallel_vectors_are_averaged_and_orthogonal_ones_added() -> None:
    parallel, orthogonal = torch.ones(7), torch.zeros(hvd.size())
    orthogonal[hvd.rank()] = 3.0
    adasum_([parallel, orthogonal])
    torch.testing.assert_close(parallel, torch.ones(7))
    torch.testing.assert_close(orthogonal, torch.full((hvd.size(),), 3.0))


def case_vectors_of_many_chunks() -> None:
    length = 2 * _adasum._CHUNK + 3
    columns = torch.arange(length, dtype=torch.float64)
    members = [torch.sin(columns * (rank + 1)) + 1 for rank in range(hvd.size())]
    tensors = [members[hvd.rank()].clone(), members[hvd.rank()][:9].clone()]
    adasum_(tensors)
    np.testing.assert_allclose(tensors[0].numpy(), tree([each.numpy() for each in members]), rtol=1e-12)
    np.testing.assert_allclose(tensors[1].numpy(), tree([each[:9].numpy() for each in members]), rtol=1e-12)


def case_lengths_that_single_precision_cannot_square() -> None:
    tensor = torch.full((3,), 1e-30 if hvd.rank() == 0 else 1e30)
    adasum_([tensor])
    reference = tree([np.full(3, float(np.float32(1e-30 if n == 0 else 1e30))) for n in range(hvd.size())])
    np.testing.assert_allclose(tensor.numpy(), reference, rtol=1e-6)


def case_numbers_that_are_not_floating_point() -> None:
    for dtype in (torch.int64, torch.bool, torch.complex64):
        with raises(ValueError, "Adasum needs floating-point numbers", str(dtype)):
            adasum_([torch.ones(3), torch.ones(3, dtype=dtype)])


if __name__ == "__main__":
    run(globals())
