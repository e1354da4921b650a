"""allreduce and reducescatter: types, operations, forms."""

from __future__ import annotations

import numpy as np
from _cases import bfloat16, over_mpi, raises, ranks, same

import cloudtrain.distributed.numpy as hvd

TYPES = [
    *(
        np.dtype(name)
        for name in (
            "uint8",
            "uint16",
            "uint32",
            "int8",
            "int16",
            "int32",
            "int64",
            "float16",
            "float32",
            "float64",
        )
    ),
    bfloat16,
]
SMALL, LARGE = (3, 4), (70, 90)
"""Shapes small enough for the request, and shapes that the backend sends."""


def given(dtype: np.dtype, shape: tuple[int, ...] = SMALL, rank: int | None = None) -> np.ndarray:
    """Return small integers, different on each rank. Every type can hold their sums and products."""
    generator = np.random.default_rng(hvd.rank() if rank is None else rank)
    return generator.integers(1, 5, shape).astype(dtype)


def of_all(dtype: np.dtype, shape: tuple[int, ...] = SMALL) -> np.ndarray:
    return np.stack([given(dtype, shape, rank) for rank in ranks()]).astype(np.float64)


def expected(op: hvd.ReduceOp, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    parts = of_all(dtype, shape)
    reduced = {
        hvd.Average: lambda: parts.sum(0) / hvd.size(),
        hvd.Sum: lambda: parts.sum(0),
        hvd.Min: lambda: parts.min(0),
        hvd.Max: lambda: parts.max(0),
        hvd.Product: lambda: parts.prod(0),
    }[op]()
    return reduced.astype(dtype)


def close(result: np.ndarray, wanted: np.ndarray) -> None:
    """Assert equality: exact for integers, within rounding for floating-point numbers."""
    assert result.dtype == wanted.dtype
    exact = result.dtype.kind in "biu"
    tolerance = 0 if exact else 1e-2 if result.dtype.itemsize == 2 else 1e-6
    np.testing.assert_allclose(result.astype(np.float64), wanted.astype(np.float64), rtol=tolerance)


def case_every_type_and_operation() -> None:
    for shape in (SMALL, LARGE):
        for dtype in TYPES:
            for op in (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product):
                array = given(dtype, shape)
                close(hvd.allreduce(array, op=op, name=f"{dtype} {op.name}"), expected(op, dtype, shape))
                same(array, given(dtype, shape))


def case_numbers_without_a_sign() -> None:
    top = np.array([2**63, 2**64 - 1], np.uint64)
    if over_mpi():
        same(hvd.allreduce(top, op=hvd.Max), top)
        same(hvd.allreduce(top // np.uint64(hvd.size()) + np.uint64(0)), top // np.uint64(hvd.size()))
    elif hvd.size() > 1:
        with raises(ValueError, "uint64", "backend='mpi'"):
            hvd.allreduce(top)
    high = np.array([2**32 - 1], np.uint32)
    same(hvd.allreduce(high, op=hvd.Min), high)


def case_truth_values() -> None:
    for mine in (np.arange(3) == hvd.rank(), np.arange(30000) == hvd.rank()):
        same(hvd.allreduce(mine, op=hvd.Max), np.arange(mine.size) < hvd.size())
        same(hvd.allreduce(mine, op=hvd.Min), (np.arange(mine.size) == 0) & (hvd.size() == 1))
    with raises(ValueError, "Average is not defined for bool", "Use Max for any"):
        hvd.allreduce(np.ones(2, bool))


def case_complex_numbers() -> None:
    for shape in (SMALL, LARGE):
        total = of_all(np.dtype("float32"), shape).sum(0)
        mine = given(np.dtype("float32"), shape) * np.complex64(1 + 2j)
        same(hvd.allreduce(mine, op=hvd.Sum), (total * (1 + 2j)).astype(np.complex64))
    with raises(ValueError, "Max is not defined for complex numbers"):
        hvd.allreduce(mine, op=hvd.Max)


def case_anything_convertible_to_an_array() -> None:
    assert hvd.allreduce([1.0, 2.0]).tolist() == [1.0, 2.0]
    assert hvd.allreduce(hvd.rank(), op=hvd.Sum).item() == sum(ranks())

    class Scores:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return np.full(2, hvd.rank(), np.float32)

    assert hvd.allreduce(Scores(), op=hvd.Max).tolist() == [hvd.size() - 1] * 2


def case_invalid_arrays() -> None:
    for wrong in (None, "text", [[1], [1, 2]], [object()], np.zeros(1, "V3"), np.zeros(1, "datetime64[s]")):
        with raises(ValueError):
            hvd.allreduce(wrong)
    with raises(ValueError, "list of at least one array"):
        hvd.grouped_allreduce([])
    with raises(ValueError, "op=9", "Average"):
        hvd.allreduce(np.ones(1), op=9)


def case_foreign_byte_order_and_strides() -> None:
    for dtype in (">f4", ">i2"):
        array = given(np.dtype(dtype)).T
        total = of_all(np.dtype(dtype)).sum(0).T.astype(dtype)
        same(hvd.allreduce(array, op=hvd.Sum), total)
        assert hvd.allreduce_(array, op=hvd.Sum) is array
        same(array, total)


def case_read_only() -> None:
    for shape in (SMALL, LARGE):
        array = given(np.dtype("float32"), shape)
        array.flags.writeable = False
        same(hvd.allreduce(array, op=hvd.Max), of_all(array.dtype, shape).max(0).astype(np.float32))
        same(array, given(array.dtype, shape))
        with raises(ValueError, "read-only"):
            hvd.allreduce_(array)
    with raises(ValueError, "a list"):
        hvd.allreduce_([1.0])


def case_results_are_writable() -> None:
    for shape in (SMALL, LARGE):
        result = hvd.allreduce(given(np.dtype("float32"), shape))
        result += 1


def case_in_place() -> None:
    for shape in (SMALL, LARGE):
        for dtype in (np.dtype("float32"), np.dtype("int16"), np.dtype("uint16"), bfloat16):
            array = given(dtype, shape)
            assert hvd.allreduce_(array, op=hvd.Sum) is array
            same(array, of_all(dtype, shape).sum(0).astype(dtype))


def case_factors() -> None:
    array = given(np.dtype("float32"))
    result = hvd.allreduce(array, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    close(result, (of_all(array.dtype).sum(0) * 1.5).astype(np.float32))
    result = hvd.allreduce(given(np.dtype("int64")), op=hvd.Sum, prescale_factor=0.5)
    same(result, (of_all(np.dtype("int64")) // 2).sum(0).astype(np.int64))
    result = hvd.allreduce(given(bfloat16), op=hvd.Sum, postscale_factor=2.0)
    close(result, (of_all(bfloat16).sum(0) * 2).astype(bfloat16))


def case_averages_of_integers_are_rounded_towards_zero() -> None:
    array = np.array([7, -7], np.int32) * (hvd.rank() == 0)
    wanted = int(7 / hvd.size())
    assert hvd.allreduce(array.astype(np.int32)).tolist() == [wanted, -wanted]


def case_odd_shapes() -> None:
    assert hvd.allreduce(np.empty((0, 5), np.float32)).shape == (0, 5)
    assert hvd.allreduce(np.float32(1)).shape == ()
    array = np.array(float(hvd.rank()))
    assert hvd.allreduce_(array, op=hvd.Sum) is array
    assert array.item() == sum(ranks())


def case_groups() -> None:
    for shape in (SMALL, LARGE):
        kinds = [np.dtype("float32"), np.dtype("int32"), np.dtype("float32"), bfloat16, np.dtype("float32")]
        arrays = [given(dtype, shape) for dtype in kinds]
        wanted = [of_all(dtype, shape).sum(0).astype(dtype) for dtype in kinds]
        for result, total in zip(hvd.grouped_allreduce(arrays, op=hvd.Sum), wanted, strict=True):
            same(result, total)
        results = hvd.grouped_allreduce_(arrays, op=hvd.Sum)
        for result, array, total in zip(results, arrays, wanted, strict=True):
            assert result is array
            same(array, total)


def case_many_at_once_in_other_orders() -> None:
    names = [f"tensor {n}" for n in range(12)]
    order = names if hvd.rank() == 0 else names[::-1]
    handles = {
        name: hvd.allreduce_async(np.full(9000, int(name[7:]), np.float32), op=hvd.Sum, name=name)
        for name in order
    }
    for name in names:
        assert hvd.synchronize(handles[name])[0] == int(name[7:]) * hvd.size()
        assert hvd.poll(handles[name])
    assert handles[names[0]]() is handles[names[0]].wait()


def case_the_same_bits_everywhere() -> None:
    result = hvd.allreduce(np.random.default_rng(hvd.rank()).normal(size=10007).astype(np.float32))
    rows = hvd.allgather(result[None])
    assert (rows == rows[0]).all()


def case_disagreements() -> None:
    if hvd.size() == 1:
        return
    odd = hvd.rank() == 1
    with raises(RuntimeError, "allreduce of odd", "shape", "rank 0: [3]", "rank 1: [4]"):
        hvd.allreduce(np.ones(3 + odd), name="odd")
    with raises(RuntimeError, "allreduce of mixed", "type", "rank 0: float32", "rank 1: int32"):
        hvd.allreduce(np.ones(3, np.int32 if odd else np.float32), name="mixed")
    with raises(RuntimeError, "operation", "rank 0: Sum", "rank 1: Max"):
        hvd.allreduce(np.ones(3), op=hvd.Max if odd else hvd.Sum, name="ops")
    with raises(RuntimeError, "prescale_factor"):
        hvd.allreduce(np.ones(3), prescale_factor=1.0 + odd, name="factors")
    handle = hvd.allreduce_async(np.ones(3), name="twice")
    with raises(ValueError, "twice", "in flight"):
        hvd.allreduce_async(np.ones(3), name="twice")
    hvd.synchronize(handle)


def case_adasum() -> None:
    if over_mpi() and hvd.size() > 1:
        with raises(ValueError, "Adasum", "backend='gloo'"):
            hvd.allreduce(np.ones(3), op=hvd.Adasum)
    else:
        np.testing.assert_allclose(hvd.allreduce(np.ones(3), op=hvd.Adasum), np.ones(3))


def case_reducescatter() -> None:
    for rows, width in ((5, 2), (301, 40), (0, 3), (1, 1)):
        for dtype in (np.dtype("float32"), np.dtype("int32"), bfloat16):
            shape = (rows, width)
            total = np.array_split(of_all(dtype, shape).sum(0), hvd.size())[hvd.rank()]
            same(hvd.reducescatter(given(dtype, shape), op=hvd.Sum), total.astype(dtype))
    one, two = hvd.grouped_reducescatter([np.ones((4, 2)), np.ones(3)], postscale_factor=2.0)
    assert (one == 2).all()
    assert (two == 2).all()
    for wrong in (np.float32(1), np.ones((2, 2), bool)):
        with raises(ValueError):
            hvd.reducescatter(wrong)
    with raises(ValueError, "not Min"):
        hvd.reducescatter(np.ones(3), op=hvd.Min)
