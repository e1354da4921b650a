"""When ranks disagree, all of them get an error that names the difference, and later operations work."""

from __future__ import annotations

from collections.abc import Callable

import torch
from _cases import raises, run
from torch import Tensor

import cloudtrain.distributed.torch as hvd

LENGTHS = [4, 20_000]
"""Tensors sent with the request, and through the backend."""


def other() -> bool:
    """Rank 0 passes one value, all other ranks another."""
    return hvd.rank() > 0


def check_refused(call: Callable[[], object], label: str, *words: str) -> None:
    """The call fails on all ranks, and the next operation with the same name works."""
    if hvd.size() == 1:
        return
    with raises(hvd.CollectiveError, label, *words, "rank 0: ", "rank 1: "):
        call()
    assert hvd.allreduce(torch.ones(2), name="t", op=hvd.Sum).tolist() == [float(hvd.size())] * 2
    assert hvd.allreduce(torch.ones(20_000), op=hvd.Sum)[-1].item() == hvd.size()


def case_shape() -> None:
    for length in LENGTHS:
        check_refused(
            lambda length=length: hvd.allreduce(torch.ones(length + other()), name="t"),
            "allreduce of t: ",
            f"disagree on shape: rank 0: [{length}], rank 1: [{length + 1}]",
        )


def case_shapes_with_the_same_number_of_elements() -> None:
    shape = (2, 6) if other() else (3, 4)
    check_refused(
        lambda: hvd.allreduce(torch.ones(shape), name="t"),
        "allreduce of t: ",
        "shape: rank 0: [3, 4]",
        "[2, 6]",
    )
    shape = (12,) if other() else (12, 1)
    check_refused(lambda: hvd.broadcast(torch.ones(shape), 0, name="t"), "broadcast of t: ", "on shape")


def case_a_small_and_a_large_tensor() -> None:
    """One rank sends its data with the request, the other does not."""
    length = LENGTHS[other()]
    check_refused(lambda: hvd.allreduce(torch.ones(length), name="t"), "allreduce of t: ", "on shape")
    check_refused(lambda: hvd.broadcast(torch.ones(length), 0, name="t"), "broadcast of t: ", "on shape")


def case_type() -> None:
    dtype = torch.float64 if other() else torch.float32
    for length in LENGTHS:
        tensor = torch.ones(length, dtype=dtype)
        words = "disagree on type: rank 0: float32, rank 1: float64"
        for kind, call in calls(tensor).items():
            check_refused(call, f"{kind} of t: ", words)


def calls(tensor: Tensor) -> dict[str, Callable[[], object]]:
    return {
        "allreduce": lambda: hvd.allreduce(tensor, name="t"),
        "allgather": lambda: hvd.allgather(tensor, name="t"),
        "broadcast": lambda: hvd.broadcast(tensor, 0, name="t"),
        "alltoall": lambda: hvd.alltoall(tensor, [len(tensor)] + [0] * (hvd.size() - 1), name="t"),
        "reducescatter": lambda: hvd.reducescatter(tensor, name="t"),
    }


def case_types_of_the_same_size() -> None:
    dtype = torch.int32 if other() else torch.float32
    check_refused(
        lambda: hvd.allreduce(torch.ones(4, dtype=dtype), name="t"),
        "allreduce of t: ",
        "type: rank 0: float32",
    )


def case_operation_of_the_reduction() -> None:
    op = hvd.Max if other() else hvd.Sum
    for length in LENGTHS:
        check_refused(
            lambda length=length: hvd.allreduce(torch.ones(length), name="t", op=op),
            "allreduce of t: ",
            "disagree on operation: rank 0: Sum, rank 1: Max",
        )
    op = hvd.Adasum if other() else hvd.Average
    check_refused(lambda: hvd.allreduce(torch.ones(4), name="t", op=op), "allreduce of t: ", "on operation")


def case_factors() -> None:
    factor = 2.0 if other() else 1.0
    check_refused(
        lambda: hvd.allreduce(torch.ones(4), name="t", prescale_factor=factor),
        "allreduce of t: ",
        "disagree on prescale_factor: rank 0: 1.0, rank 1: 2.0",
    )
    check_refused(
        lambda: hvd.reducescatter(torch.ones(4), name="t", postscale_factor=factor),
        "reducescatter of t: ",
        "disagree on postscale_factor: rank 0: 1.0, rank 1: 2.0",
    )


def case_root() -> None:
    for length in LENGTHS:
        check_refused(
            lambda length=length: hvd.broadcast(torch.ones(length), int(other()), name="t"),
            "broadcast of t: ",
            "disagree on root_rank: rank 0: 0, rank 1: 1",
        )
    check_refused(lambda: hvd.broadcast_object(1, int(other()), name="t"), "broadcast of t: ", "on root_rank")


def case_device() -> None:
    """Needs a GPU for one of the ranks."""
    if not torch.cuda.is_available():
        return
    tensor = torch.ones(4, device="cuda" if other() else "cpu")
    check_refused(
        lambda: hvd.allreduce(tensor, name="t"), "allreduce of t: ", "device: rank 0: cpu, rank 1: cuda"
    )


def case_kinds_without_names() -> None:
    check_refused(
        lambda: hvd.allgather(torch.ones(4)) if other() else hvd.allreduce(torch.ones(4)),
        "noname.",
        "disagree on the operation: rank 0: allreduce, rank 1: allgather",
    )


def case_several_differences() -> None:
    tensor = torch.ones(3, dtype=torch.int64) if other() else torch.ones(2)
    check_refused(
        lambda: hvd.allreduce(tensor, name="t"),
        "allreduce of t: ",
        "on shape: rank 0: [2]",
        "on type: rank 0: float32",
    )


def case_an_object_and_a_tensor() -> None:
    check_refused(
        lambda: hvd.broadcast_object(1, name="t") if other() else hvd.broadcast(torch.ones(1), 0, name="t"),
        "broadcast of t: ",
    )


def case_other_operations_continue() -> None:
    if hvd.size() == 1:
        return
    before = hvd.allreduce_async(torch.ones(20_000), name="before")
    odd = hvd.allreduce_async(torch.ones(2 + other()), name="odd")
    after = hvd.allreduce_async(torch.ones(3), name="after")
    assert hvd.synchronize(after).tolist() == [1.0] * 3
    with raises(hvd.CollectiveError, "allreduce of odd"):
        hvd.synchronize(odd)
    assert hvd.synchronize(before)[-1].item() == 1.0


def case_parameters_of_optimizers() -> None:
    if hvd.size() == 1:
        return
    model = torch.nn.Linear(2, 2 + other())
    with raises(ValueError, "parameter", "[0]", "weight (2, 2)", "weight (3, 2)"):
        hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    hvd.barrier()


if __name__ == "__main__":
    run(globals())
