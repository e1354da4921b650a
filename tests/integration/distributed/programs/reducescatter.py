"""reducescatter: every rank gets its share of the rows of the sum."""

from __future__ import annotations

import torch
from _cases import raises, run

import cloudtrain.distributed.torch as hvd

TYPES = [
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


def own_rows(rows: int) -> slice:
    """The first ranks get one more row if rows do not divide evenly."""
    each, rest = divmod(rows, hvd.size())
    start = hvd.rank() * each + min(hvd.rank(), rest)
    return slice(start, start + each + (hvd.rank() < rest))


def case_every_type() -> None:
    size = hvd.size()
    for dtype in TYPES:
        whole = torch.arange(2 * size * 3).reshape(2 * size, 3).to(dtype)
        for op, factor in ((hvd.Sum, size), (hvd.Average, 1)):
            share = hvd.reducescatter(whole, op=op)
            assert share.dtype == dtype
            assert torch.equal(share, whole[own_rows(2 * size)] * factor), (dtype, op)


def case_average_is_the_default() -> None:
    share = hvd.reducescatter(torch.full((hvd.size(),), float(hvd.rank())))
    assert share.tolist() == [(hvd.size() - 1) / 2]


def case_uneven_rows() -> None:
    for rows in (0, 1, hvd.size() - 1, hvd.size() + 1, 3 * hvd.size() + 2):
        whole = torch.arange(2.0 * rows).reshape(rows, 2)
        share = hvd.reducescatter(whole, op=hvd.Sum)
        assert torch.equal(share, whole[own_rows(rows)] * hvd.size()), rows


def case_large() -> None:
    rows = (1 << 21) + 1
    share = hvd.reducescatter(torch.arange(rows, dtype=torch.float32) + hvd.rank(), op=hvd.Average)
    held = own_rows(rows)
    assert share[0].item() == held.start + (hvd.size() - 1) / 2
    assert len(share) == held.stop - held.start


def case_factors_and_compression() -> None:
    ones = torch.ones(hvd.size())
    share = hvd.reducescatter(ones, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    assert share.tolist() == [1.5 * hvd.size()]
    share = hvd.reducescatter(ones * 0.5, compression=hvd.Compression.fp16, op=hvd.Sum)
    assert (share.dtype, share.tolist()) == (torch.float32, [0.5 * hvd.size()])


def case_asynchronous_leaves_the_input_unchanged() -> None:
    whole = torch.ones(hvd.size(), 2)
    handle = hvd.reducescatter_async(whole, name="kept", op=hvd.Sum)
    assert hvd.synchronize(handle).tolist() == [[float(hvd.size())] * 2]
    assert whole.tolist() == [[1.0, 1.0]] * hvd.size()


def case_gradients() -> None:
    """As in Horovod, that of an average is gathered unscaled, that of a sum times the number of ranks."""
    for op, factor in ((hvd.Average, 1), (hvd.Sum, hvd.size())):
        whole = torch.ones(hvd.size() + 1, 2, requires_grad=True)
        (hvd.reducescatter(whole, op=op) * (hvd.rank() + 1)).sum().backward()
        shares = [2] + [1] * (hvd.size() - 1)
        wanted = [factor * (rank + 1.0) for rank, rows in enumerate(shares) for _ in range(rows)]
        assert whole.grad[:, 0].tolist() == wanted


def case_invalid_arguments() -> None:
    with raises(ValueError, "first dimension"):
        hvd.reducescatter(torch.tensor(1.0))
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        with raises(RuntimeError, f"not {op.name}"):
            hvd.reducescatter(torch.ones(hvd.size()), op=op)
    if hvd.size() > 1:
        with raises(RuntimeError, "reducescatter of odd", "rank 0: [2]", "rank 1: [3]"):
            hvd.reducescatter(torch.ones(2 + hvd.rank()), name="odd")
        hvd.reducescatter(torch.ones(2), name="odd")


if __name__ == "__main__":
    run(globals())
