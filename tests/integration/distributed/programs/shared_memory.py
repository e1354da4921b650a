"""Allreduce through shared memory: in several chunks, from two groups at the same time, and without memory."""

from __future__ import annotations

import os
import resource

import torch
from _cases import raises, run, same_on_all_ranks, seeded

import cloudtrain.distributed.torch as hvd
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._shared_memory import SLOT_BYTES

PART = SLOT_BYTES // 4
"""float32 elements of one chunk."""


def given(numel: int, rank: int) -> torch.Tensor:
    """Noise that differs between ranks: sums in another order would differ in the last bits."""
    return torch.randn(numel, generator=seeded(rank))


def check(numel: int, name: str | None = None) -> None:
    tensor = given(numel, hvd.rank())
    hvd.allreduce_(tensor, op=hvd.Sum, name=name)
    total = given(numel, 0)
    for rank in range(1, hvd.size()):
        total += given(numel, rank)
    assert torch.equal(tensor, total), (numel, (tensor - total).abs().max())
    assert same_on_all_ranks(tensor)


def memories() -> int:
    return len(_state.current().memory)


def case_parts_of_any_size() -> None:
    assert memories() == (2 if hvd.size() > 1 else 0)
    for numel in (5000, PART - 1, PART, PART + 1, 2 * PART, 5 * PART + 3):
        check(numel, f"by name {numel}")
        with hvd.same_order():
            check(numel)


def case_empty_and_one_element() -> None:
    for numel in (0, 1, 2):
        with hvd.same_order():
            check(numel)


def case_named_and_ordered_at_once() -> None:
    """Each has its own memory, so neither waits for the other."""
    named = [hvd.allreduce_async_(given(PART + 7, hvd.rank()), name=str(n), op=hvd.Sum) for n in range(4)]
    with hvd.same_order():
        ordered = [hvd.allreduce_async_(given(PART + 7, hvd.rank()), op=hvd.Sum) for _ in range(4)]
        check(PART)
    total = sum((given(PART + 7, rank) for rank in range(1, hvd.size())), given(PART + 7, 0))
    for handle in [*ordered, *named[::-1]]:
        assert torch.equal(hvd.synchronize(handle), total)


def case_after_close() -> None:
    """Another thread may still hold it: what it starts fails instead of waiting forever."""
    check(PART, "before the end")
    ended = list(_state.current().memory.values())
    hvd.shutdown()
    for memory in ended:
        for async_op in (True, False, True):
            with raises(RuntimeError, "shared memory"):
                memory.all_reduce(torch.ones(3), hvd.Sum, async_op=async_op).wait()
    hvd.init(start_timeout=240, timeout=120)


def case_without_memory() -> None:
    """The file size limit on rank 0 is too small, so all ranks do without it."""
    hvd.shutdown()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if os.environ.get("RANK") == "0":
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    hvd.init(start_timeout=240, timeout=120)
    assert memories() == 0
    sums = hvd.allreduce(torch.full((PART + 1,), 2.0 ** hvd.rank()), op=hvd.Sum)
    assert torch.equal(sums, torch.full_like(sums, 2.0 ** hvd.size() - 1))
    hvd.shutdown()
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    hvd.init(start_timeout=240, timeout=120)
    check(PART + 1, "with again")


if __name__ == "__main__":
    run(globals())
