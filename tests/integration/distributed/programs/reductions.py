"""allreduce: types, operations, forms."""

from __future__ import annotations

import itertools

import torch
from _cases import raises, run, same_on_all_ranks, seeded
from torch import Tensor

import cloudtrain.distributed.torch as hvd

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
OPERATIONS = [hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product]
"""Adasum has its own program."""
SHAPES = [(3, 4), (17_000,)]
"""The first is sent with the request, the second through the backend, for every type."""
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def given(dtype: torch.dtype, rank: int | None = None, shape: tuple[int, ...] = (3, 4)) -> Tensor:
    """Small integers, different on each rank; every type can hold their sums and products."""
    generator = seeded(hvd.rank() if rank is None else rank)
    return torch.randint(1, 5, shape, generator=generator).to(dtype)


def of_all(dtype: torch.dtype, shape: tuple[int, ...] = (3, 4)) -> Tensor:
    return torch.stack([given(dtype, rank, shape) for rank in range(hvd.size())])


def expected(op: hvd.ReduceOp, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    parts = of_all(dtype, shape).double()
    reduced = {
        hvd.Average: lambda: parts.sum(0) / hvd.size(),
        hvd.Sum: lambda: parts.sum(0),
        hvd.Min: lambda: parts.amin(0),
        hvd.Max: lambda: parts.amax(0),
        hvd.Product: lambda: parts.prod(0),
    }[op]()
    return reduced.to(dtype)


def case_every_type_and_operation() -> None:
    for dtype, op, shape in itertools.product(FLOATS + INTEGERS, OPERATIONS, SHAPES):
        tensor = given(dtype, shape=shape)
        result = hvd.allreduce(tensor, op=op, name=f"{dtype} {op.name}")
        assert result.dtype == dtype
        assert torch.equal(tensor, given(dtype, shape=shape)), "the input was changed"
        torch.testing.assert_close(result, expected(op, dtype, shape), msg=f"{dtype} {op.name} {shape}")


def case_complex_numbers_are_summed() -> None:
    for shape in SHAPES:
        part, total = given(torch.float32, shape=shape), of_all(torch.float32, shape).sum(0)
        result = hvd.allreduce(torch.complex(part, part), op=hvd.Sum)
        torch.testing.assert_close(result, torch.complex(total, total))


def case_booleans() -> None:
    """Their sum is true if any is, their product if all are."""
    for shape in SHAPES:
        for op, wanted in (
            (hvd.Sum, [True, True, False]),
            (hvd.Max, [True, True, False]),
            (hvd.Product, [True, hvd.size() == 1, False]),
            (hvd.Min, [True, hvd.size() == 1, False]),
        ):
            own = torch.tensor([True, hvd.rank() == 0, False]).repeat(*shape)
            assert torch.equal(hvd.allreduce(own, op=op), torch.tensor(wanted).repeat(*shape)), op


def case_average_is_the_default() -> None:
    result = hvd.allreduce(given(torch.float32))
    torch.testing.assert_close(result, of_all(torch.float32).mean(0))


def case_averages_of_integers_are_rounded_towards_zero() -> None:
    tensor = (
        torch.tensor([7, -7], dtype=torch.int32) if hvd.rank() == 0 else torch.zeros(2, dtype=torch.int32)
    )
    wanted = int(7 / hvd.size())
    assert hvd.allreduce(tensor).tolist() == [wanted, -wanted]


def case_factors_before_and_after() -> None:
    result = hvd.allreduce(given(torch.float32), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    torch.testing.assert_close(result, of_all(torch.float32).sum(0) * 1.5)
    result = hvd.allreduce(given(torch.int64), op=hvd.Sum, prescale_factor=0.5)
    assert torch.equal(result, (of_all(torch.int64) // 2).sum(0))
    result = hvd.allreduce(given(torch.int64), postscale_factor=10.0)
    assert torch.equal(result, of_all(torch.int64).sum(0) * 10 // hvd.size())


def case_without_dimensions() -> None:
    result = hvd.allreduce(torch.tensor(float(hvd.rank())), op=hvd.Sum)
    assert result.shape == ()
    assert result.item() == sum(range(hvd.size()))


def case_empty() -> None:
    assert hvd.allreduce(torch.empty(0, 5)).shape == (0, 5)


def case_not_contiguous() -> None:
    tensor = given(torch.float32).t()
    total = of_all(torch.float32).sum(0).t()
    assert torch.equal(hvd.allreduce(tensor, op=hvd.Sum), total)
    assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
    assert torch.equal(tensor, total)


def case_in_place() -> None:
    for dtype in (torch.float32, torch.int16):
        tensor = given(dtype)
        assert hvd.allreduce_(tensor, op=hvd.Max) is tensor
        assert torch.equal(tensor, of_all(dtype).amax(0))


def case_in_place_on_a_parameter() -> None:
    parameter = torch.nn.Parameter(given(torch.float32))
    hvd.allreduce_(parameter)
    torch.testing.assert_close(parameter.data, of_all(torch.float32).mean(0))


def case_many_in_flight() -> None:
    handles = [hvd.allreduce_async(torch.full((n + 1,), float(n)), op=hvd.Sum) for n in range(20)]
    results = [hvd.synchronize(handle) for handle in handles]
    assert all(hvd.poll(handle) for handle in handles)
    assert [result[0].item() for result in results] == [n * hvd.size() for n in range(20)]
    assert hvd.synchronize(handles[3]) is results[3]


def case_large() -> None:
    """8 MB; in place, too."""
    tensor = torch.full((1 << 21,), float(hvd.rank()))
    assert hvd.allreduce(tensor).unique().tolist() == [(hvd.size() - 1) / 2]
    assert hvd.allreduce_(tensor, op=hvd.Max).unique().tolist() == [hvd.size() - 1]


def case_the_same_bits_everywhere() -> None:
    torch.manual_seed(hvd.rank())
    for length in (1007, 100_007):
        assert same_on_all_ranks(hvd.allreduce(torch.randn(length)))


def case_compression() -> None:
    torch.manual_seed(hvd.rank())
    tensor = torch.randn(100)
    exact = hvd.allreduce(tensor)
    for compression, tolerance in ((hvd.Compression.fp16, 2e-3), (hvd.Compression.bf16, 2e-2)):
        result = hvd.allreduce(tensor, compression=compression)
        assert result.dtype == torch.float32
        torch.testing.assert_close(result, exact, rtol=tolerance, atol=tolerance)
    whole = given(torch.int32)
    assert torch.equal(
        hvd.allreduce(whole, compression=hvd.Compression.fp16, op=hvd.Sum), of_all(torch.int32).sum(0)
    )


def case_deprecated_average() -> None:
    assert hvd.allreduce(torch.ones(1), False).item() == hvd.size()
    assert hvd.allreduce(torch.ones(1), average=True).item() == 1
    with raises(ValueError, "supersedes average"):
        hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum)
    with raises(ValueError, "op=9", "Average"):
        hvd.allreduce(torch.ones(1), op=9)


def case_gradient() -> None:
    for op, factor in ((hvd.Sum, hvd.size()), (hvd.Average, 1)):
        tensor = given(torch.float32).requires_grad_()
        (hvd.allreduce(tensor, op=op, prescale_factor=2.0) * (hvd.rank() + 1)).sum().backward()
        mean_weight = (hvd.size() + 1) / 2
        torch.testing.assert_close(tensor.grad, torch.full((3, 4), 2.0 * factor * mean_weight))
    tensor = given(torch.float32).requires_grad_()
    with raises(ValueError, "Min", "no gradient"):
        hvd.allreduce(tensor, op=hvd.Min).sum().backward()


def case_gradient_through_compression() -> None:
    tensor = given(torch.float32).requires_grad_()
    hvd.allreduce(tensor, compression=hvd.Compression.fp16).sum().backward()
    torch.testing.assert_close(tensor.grad, torch.ones(3, 4))


def case_average_of_metrics() -> None:
    """Each rank has one more sample than the previous one. Rank 0 has none, so its value is ignored."""
    metrics = {"loss": 10.0 * hvd.rank() if hvd.rank() else float("nan"), "accuracy": torch.tensor(1 / 3)}
    if hvd.rank() % 2:
        metrics = dict(reversed(metrics.items()))
    means = hvd.average_metrics(metrics, weight=hvd.rank())
    assert list(means) == list(metrics)
    if hvd.size() > 1:
        squares, weights = sum(rank**2 for rank in range(hvd.size())), sum(range(hvd.size()))
        torch.testing.assert_close(means, {"loss": 10 * squares / weights, "accuracy": 1 / 3})
    assert same_on_all_ranks(torch.tensor([means["loss"], means["accuracy"]]).nan_to_num())


def case_barrier() -> None:
    hvd.barrier()


if __name__ == "__main__":
    run(globals())
