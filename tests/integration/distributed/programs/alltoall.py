"""alltoall: every rank sends some of its rows to every other."""

from __future__ import annotations

import torch
from _cases import raises, run

import cloudtrain.distributed.torch as hvd

TYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
]


def case_even_rows_of_every_type_and_shape() -> None:
    for dtype in TYPES:
        for shape in ((), (3,), (2, 2), (0,)):
            sent = torch.stack([torch.full(shape, rank % 2) for rank in range(hvd.size())]).to(dtype)
            received = hvd.alltoall(sent)
            assert (received.dtype, received.shape) == (dtype, sent.shape)
            assert bool((received == torch.full_like(sent, hvd.rank() % 2)).all()), dtype


def case_even_rows_have_no_splits_in_the_result() -> None:
    received = hvd.alltoall(torch.arange(2 * hvd.size()) + 100 * hvd.rank())
    own = [2 * hvd.rank(), 2 * hvd.rank() + 1]
    assert received.tolist() == [100 * rank + row for rank in range(hvd.size()) for row in own]


def case_splits() -> None:
    """Rank r sends r + 1 rows to rank 0, r + 2 to rank 1, ..."""
    splits = [hvd.rank() + to + 1 for to in range(hvd.size())]
    sent = torch.cat([torch.full((rows, 2), 10 * hvd.rank() + to) for to, rows in enumerate(splits)])
    for given in (splits, tuple(splits), torch.tensor(splits), torch.tensor(splits, dtype=torch.int32)):
        received, rows = hvd.alltoall(sent, given)
        wanted = [rank + hvd.rank() + 1 for rank in range(hvd.size())]
        assert rows.tolist() == wanted
        assert rows.dtype == torch.int32
        assert received[:, 1].tolist() == [
            10 * rank + hvd.rank() for rank in range(hvd.size()) for _ in range(wanted[rank])
        ]


def case_ranks_that_send_or_receive_nothing() -> None:
    size, last = hvd.size(), hvd.size() - 1
    received, rows = hvd.alltoall(torch.full((3, 2), hvd.rank()), [0] * last + [3], name="all to the last")
    assert rows.tolist() == ([3] * size if hvd.rank() == last else [0] * size)
    assert received.shape == (sum(rows.tolist()), 2)
    sent = torch.ones(size, 2) if hvd.rank() == 0 else torch.ones(0, 2)
    received, rows = hvd.alltoall(sent, [int(hvd.rank() == 0)] * size)
    assert rows.tolist() == [1] + [0] * last
    received, rows = hvd.alltoall(torch.empty(0, 4), [0] * size)
    assert received.shape == (0, 4)


def case_large() -> None:
    rows = (1 << 18) + hvd.rank()
    received, counts = hvd.alltoall(torch.full((hvd.size() * rows,), float(hvd.rank())), [rows] * hvd.size())
    assert counts.tolist() == [(1 << 18) + rank for rank in range(hvd.size())]
    assert received.unique_consecutive().tolist() == [float(rank) for rank in range(hvd.size())]


def case_asynchronous_by_name() -> None:
    names = ["a", "b", "c"]
    handles = {
        name: hvd.alltoall_async(torch.full((hvd.size(),), ord(name)), name=name)
        for name in (names if hvd.rank() % 2 else reversed(names))
    }
    for name, handle in handles.items():
        assert hvd.synchronize(handle).tolist() == [ord(name)] * hvd.size()


def case_not_contiguous() -> None:
    sent = torch.arange(2 * hvd.size()).reshape(2, hvd.size()).t()
    assert hvd.alltoall(sent).tolist() == [[hvd.rank(), hvd.rank() + hvd.size()]] * hvd.size()


def case_gradients_return_to_the_senders_of_the_rows() -> None:
    splits = [to + 1 for to in range(hvd.size())]
    sent = torch.ones(sum(splits), 2, requires_grad=True)
    received, _ = hvd.alltoall(sent, splits)
    (received * (hvd.rank() + 1)).sum().backward()
    assert sent.grad[:, 0].tolist() == [to + 1.0 for to in range(hvd.size()) for _ in range(to + 1)]
    even = torch.ones(hvd.size(), requires_grad=True)
    (hvd.alltoall(even) * (hvd.rank() + 1)).sum().backward()
    assert even.grad.tolist() == [rank + 1.0 for rank in range(hvd.size())]


def case_wrong_splits() -> None:
    size = hvd.size()
    for tensor, splits, words in (
        (torch.ones(()), None, "first dimension"),
        (torch.ones(size), [1] * (size + 1), f"{size + 1} splits for {size} ranks"),
        (torch.ones(size), [2] * size, "do not add up"),
        (torch.ones(size), [*[1] * (size - 1), -1], "do not add up"),
        (torch.ones(size), torch.ones(size), "must be integers"),
        (torch.ones(size), torch.ones(size, 1, dtype=torch.int32), "must be integers"),
    ):
        with raises(ValueError, words):
            hvd.alltoall(tensor, splits)
    if size > 1:
        with raises(ValueError, f"{size + 1} rows cannot be divided"):
            hvd.alltoall(torch.ones(size + 1))


def case_different_shapes_and_types() -> None:
    if hvd.size() == 1:
        return
    with raises(RuntimeError, "alltoall of odd", "shape", "rank 0: ['rows', 2]", "rank 1: ['rows', 3]"):
        hvd.alltoall(torch.ones(hvd.size(), 2 + hvd.rank()), name="odd")
    with raises(RuntimeError, "alltoall of odd", "type", "rank 1: int64"):
        hvd.alltoall(torch.ones(hvd.size(), dtype=[torch.float32, torch.int64][hvd.rank() > 0]), name="odd")
    hvd.alltoall(torch.ones(hvd.size()), name="odd")


if __name__ == "__main__":
    run(globals())
