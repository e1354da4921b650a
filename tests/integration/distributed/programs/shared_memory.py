"""Allreduce through memory between ranks of one machine: in several parts, out of step, and where there is none."""

from __future__ import annotations

import os
import resource

import torch
from _cases import raises, run, same_on_all_ranks

import cloudtrain.distributed.torch as hvd
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._shared_memory import SLOT_BYTES

PART = SLOT_BYTES // 4
"""float32 numbers of one part."""


def given(numel: int, rank: int) -> torch.Tensor:
    """Noise that is another on each rank: sums in another order would differ in their last bits."""
    return torch.randn(numel, generator=torch.Generator().manual_seed(rank))


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


def case_nothing_and_one_number() -> None:
    for numel in (0, 1, 2):
        with hvd.same_order():
            check(numel)


def case_named_and_ordered_at_once() -> None:
    """Both have memory of their own, so neither waits for the other."""
    named = [hvd.allreduce_async_(given(PART + 7, hvd.rank()), name=str(n), op=hvd.Sum) for n in range(4)]
    with hvd.same_order():
        ordered = [hvd.allreduce_async_(given(PART + 7, hvd.rank()), op=hvd.Sum) for _ in range(4)]
        check(PART)
    total = sum((given(PART + 7, rank) for rank in range(1, hvd.size())), given(PART + 7, 0))
    for handle in [*ordered, *named[::-1]]:
        assert torch.equal(hvd.synchronize(handle), total)


def case_after_its_end() -> None:
    """Another thread may have found it before: what it starts fails, and does not wait for ever."""
    check(PART, "before the end")
    ended = list(_state.current().memory.values())
    hvd.shutdown()
    for memory in ended:
        for async_op in (True, False, True):
            with raises(RuntimeError, "shared memory"):
                memory.all_reduce(torch.ones(3), hvd.Sum, async_op=async_op).wait()
    hvd.init(start_timeout=60, timeout=30)


def case_without_memory() -> None:
    """Files may not be as large as it would have to be on rank 0: then all ranks do without."""
    hvd.shutdown()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if os.environ.get("RANK") == "0":
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    hvd.init(start_timeout=60, timeout=30)
    assert memories() == 0
    sums = hvd.allreduce(torch.full((PART + 1,), 2.0 ** hvd.rank()), op=hvd.Sum)
    assert torch.equal(sums, torch.full_like(sums, 2.0 ** hvd.size() - 1))
    hvd.shutdown()
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    hvd.init(start_timeout=60, timeout=30)
    check(PART + 1, "with again")


if __name__ == "__main__":
    run(globals())
