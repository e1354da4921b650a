"""Tensors created in torch.inference_mode(), such as metrics: other threads cannot change them in place."""

from __future__ import annotations

import torch
from _cases import run

import cloudtrain.distributed.torch as hvd

LENGTHS = (4, 1 << 16)
"""One is sent with the request, the other is not."""


def ones(length: int) -> torch.Tensor:
    tensor = torch.ones(length)
    assert tensor.is_inference()
    return tensor


@torch.inference_mode()
def case_allreduce() -> None:
    for length in LENGTHS:
        expected = torch.full((length,), float(hvd.size()))
        for reduce in (hvd.allreduce_async, hvd.allreduce_async_):
            assert torch.equal(hvd.synchronize(reduce(ones(length), op=hvd.Sum)), expected)
            with hvd.same_order():
                assert torch.equal(hvd.synchronize(reduce(ones(length), op=hvd.Sum)), expected)
        with hvd.same_order():
            assert torch.equal(hvd.allreduce_(ones(length), op=hvd.Sum), expected)


@torch.inference_mode()
def case_adasum() -> None:
    for length in LENGTHS:
        assert torch.allclose(hvd.allreduce_(ones(length), op=hvd.Adasum), torch.ones(length))


@torch.inference_mode()
def case_rows_and_broadcast() -> None:
    size, rank = hvd.size(), hvd.rank()
    for length in LENGTHS:
        sent = ones(length) * rank
        assert torch.equal(hvd.broadcast_(sent, size - 1), torch.full((length,), size - 1.0))
        assert torch.equal(hvd.allgather(ones(length)), torch.ones(size * length))
        assert torch.equal(hvd.alltoall(ones(size * length)), torch.ones(size * length))
        assert torch.equal(
            hvd.reducescatter(ones(size * length), op=hvd.Sum), torch.full((length,), 1.0 * size)
        )


if __name__ == "__main__":
    run(globals())
