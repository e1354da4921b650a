"""Several tensors as one operation."""

from __future__ import annotations

import torch
from _cases import raises, run
from torch import Tensor

import cloudtrain.distributed.torch as hvd

MIXED = [torch.float32, torch.int64, torch.float64, torch.float32, torch.bfloat16, torch.int16, torch.float16]


def of_types(dtypes: list[torch.dtype], rows: int) -> list[Tensor]:
    """One tensor for each type: its number plus the rank."""
    return [
        torch.full((rows, 1 + number), number + hvd.rank()).to(dtype) for number, dtype in enumerate(dtypes)
    ]


def wanted_sum(number: int) -> int:
    return number * hvd.size() + sum(range(hvd.size()))


def case_allreduce_of_one_and_of_many_types() -> None:
    for dtypes in ([torch.float32], [torch.float32] * 5, MIXED):
        for rows in (3, 5000):
            tensors = of_types(dtypes, rows)
            reduced = hvd.grouped_allreduce(tensors, op=hvd.Sum)
            for number, (before, after) in enumerate(zip(tensors, reduced, strict=True)):
                assert (after.shape, after.dtype) == (before.shape, before.dtype)
                assert bool((after == wanted_sum(number)).all())
                assert bool((before == number + hvd.rank()).all()), "the input was changed"


def case_in_place() -> None:
    for dtypes in ([torch.float32], [torch.float32] * 3, MIXED):
        tensors = of_types(dtypes, 4)
        reduced = hvd.grouped_allreduce_(tensors, op=hvd.Max)
        for number, (before, after) in enumerate(zip(tensors, reduced, strict=True)):
            assert after is before
            assert bool((after == number + hvd.size() - 1).all())


def case_asynchronous_and_named() -> None:
    handles = [
        hvd.grouped_allreduce_async(of_types(MIXED, 2), op=hvd.Sum, name="first"),
        hvd.grouped_allreduce_async_(of_types(MIXED, 2), op=hvd.Sum, name="second"),
    ]
    for handle in handles if hvd.rank() == 0 else reversed(handles):
        assert [one.flatten()[0].item() for one in hvd.synchronize(handle)] == [
            wanted_sum(number) for number in range(len(MIXED))
        ]


def case_factors_and_average() -> None:
    tensors = [torch.full((2,), float(hvd.rank())), torch.tensor(2.0 * hvd.rank())]
    mean = (hvd.size() - 1) / 2
    first, second = hvd.grouped_allreduce(tensors, prescale_factor=2.0, postscale_factor=0.5)
    assert first.tolist() == [mean] * 2
    assert (second.shape, second.item()) == ((), 2 * mean)


def case_compression() -> None:
    tensors = [torch.full((3,), 0.1), torch.ones(2, dtype=torch.int32)]
    first, second = hvd.grouped_allreduce(tensors, compression=hvd.Compression.fp16, op=hvd.Average)
    assert first.dtype == torch.float32
    torch.testing.assert_close(first, torch.full((3,), 0.1), rtol=1e-3, atol=1e-3)
    assert second.tolist() == [1, 1]


def case_allgather() -> None:
    for rows in (1, 6000):
        tensors = [
            torch.full((rows * (hvd.rank() + 1), 2), float(hvd.rank())),
            torch.tensor(hvd.rank()),
            torch.empty(0, 3),
        ]
        many, scalars, nothing = hvd.grouped_allgather(tensors)
        counts = [int((many[:, 0] == rank).sum()) for rank in range(hvd.size())]
        assert counts == [rows * (rank + 1) for rank in range(hvd.size())]
        assert scalars.tolist() == list(range(hvd.size()))
        assert nothing.shape == (0, 3)
    [only] = hvd.synchronize(hvd.grouped_allgather_async([torch.ones(1)], name="only"))
    assert only.tolist() == [1.0] * hvd.size()


def case_reducescatter() -> None:
    size = hvd.size()
    tensors = [torch.arange(2.0 * size).reshape(size, 2), torch.arange(2 * size)]
    first, second = hvd.grouped_reducescatter(tensors, op=hvd.Sum)
    assert first.tolist() == (tensors[0][hvd.rank()][None] * size).tolist()
    assert second.tolist() == (tensors[1][2 * hvd.rank() :][:2] * size).tolist()
    handle = hvd.grouped_reducescatter_async(tensors, name="again")
    assert torch.equal(hvd.synchronize(handle)[0], tensors[0][hvd.rank()][None])


def case_gradients() -> None:
    tensors = [torch.ones(2, requires_grad=True), torch.ones(3, dtype=torch.float64, requires_grad=True)]
    first, second = hvd.grouped_allreduce(tensors, op=hvd.Sum)
    (first.sum() + 2 * second.sum()).backward()
    assert tensors[0].grad.tolist() == [hvd.size()] * 2
    assert tensors[1].grad.tolist() == [2.0 * hvd.size()] * 3
    tensors = [torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)]
    first, second = hvd.grouped_allgather(tensors)
    (first.sum() + 3 * second.sum()).backward()
    assert (tensors[0].grad.tolist(), tensors[1].grad.tolist()) == ([1.0, 1.0], [3.0])


def case_invalid_groups() -> None:
    for call in (
        hvd.grouped_allreduce,
        hvd.grouped_allreduce_,
        hvd.grouped_allreduce_async,
        hvd.grouped_allgather,
        hvd.grouped_reducescatter,
    ):
        for nothing in ([], (), torch.ones(2)):
            with raises(ValueError, "a list of at least one tensor"):
                call(nothing)


def case_different_shapes_and_numbers_of_tensors() -> None:
    if hvd.size() == 1:
        return
    for name, tensors, words in (
        ("shape", [torch.ones(2), torch.ones(2 + hvd.rank())], "disagree on shape: rank 0: [[2], [2]]"),
        ("number", [torch.ones(2)] * (2 + hvd.rank()), "disagree on shape"),
        ("type", of_types([torch.float32, [torch.int64, torch.float64][hvd.rank() > 0]], 1), "on type"),
    ):
        with raises(RuntimeError, f"allreduce of {name}", words, "rank 1: "):
            hvd.grouped_allreduce(tensors, name=name)
        assert hvd.grouped_allreduce([torch.ones(1)] * 2, name=name)[1].item() == 1.0


if __name__ == "__main__":
    run(globals())
