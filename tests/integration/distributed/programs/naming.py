"""Operations are matched by kind and name in any order, or by their order if they have no name."""

from __future__ import annotations

import itertools
import random
import threading
import time

import torch
from _cases import raises, run

import cloudtrain.distributed.torch as hvd

LENGTHS = [1, 100, 20_000]
"""The last one is too large to be sent with the request."""


def case_different_orders() -> None:
    names = [(f"tensor {number}", length) for number in range(12) for length in LENGTHS]
    random.Random(hvd.rank()).shuffle(names)
    handles = {}
    for name, length in names:
        value = float(name.split()[1]) + hvd.rank()
        handles[name, length] = hvd.allreduce_async(
            torch.full((length,), value), name=f"{name} of {length}", op=hvd.Sum
        )
    for (name, length), handle in handles.items():
        total = float(name.split()[1]) * hvd.size() + sum(range(hvd.size()))
        assert hvd.synchronize(handle).tolist() == [total] * length


def case_all_kinds_in_different_orders() -> None:
    """One name may serve different kinds at the same time."""
    size = hvd.size()
    calls = {
        "allreduce": lambda name: hvd.allreduce_async(torch.ones(2), name=name, op=hvd.Sum),
        "allgather": lambda name: hvd.allgather_async(torch.tensor([hvd.rank()]), name=name),
        "broadcast": lambda name: hvd.broadcast_async(torch.tensor(hvd.rank()), size - 1, name=name),
        "alltoall": lambda name: hvd.alltoall_async(torch.arange(size), name=name),
        "reducescatter": lambda name: hvd.reducescatter_async(torch.ones(size), name=name, op=hvd.Sum),
    }
    wanted = {
        "allreduce": [float(size)] * 2,
        "allgather": list(range(size)),
        "broadcast": size - 1,
        "alltoall": [hvd.rank()] * size,
        "reducescatter": [float(size)],
    }
    order = list(itertools.product(calls, ["a", "b"]))
    random.Random(hvd.rank()).shuffle(order)
    handles = [(kind, calls[kind](name)) for kind, name in order]
    random.Random(-hvd.rank()).shuffle(handles)
    for kind, handle in handles:
        assert hvd.synchronize(handle).tolist() == wanted[kind], kind


def case_several_threads() -> None:
    """Every rank has 4 threads with different names that call synchronous collectives."""
    wrong: list[object] = []

    def work(thread: int) -> None:
        try:
            for step in range(20):
                length = LENGTHS[(step + thread) % len(LENGTHS)]
                tensor = torch.full((length,), float(thread + step))
                result = hvd.allreduce(tensor, name=f"thread {thread}, step {step}", op=hvd.Sum)
                if result.tolist() != (tensor * hvd.size()).tolist():
                    wrong.append((thread, step))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=[thread]) for thread in range(4)]
    for thread in threads if hvd.rank() % 2 else reversed(threads):
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


def case_a_name_again_and_again() -> None:
    for step in range(50):
        result = hvd.allreduce(torch.tensor(float(step)), name="loss", op=hvd.Sum)
        assert result.item() == step * hvd.size()


def case_a_name_in_flight() -> None:
    if hvd.size() == 1:
        return
    for length, late in itertools.product(LENGTHS, range(hvd.size())):
        if hvd.rank() == late:
            hvd.barrier()
        handle = hvd.allreduce_async(torch.ones(length), name="twice")
        if hvd.rank() != late:
            with raises(ValueError, "allreduce of twice", "in flight"):
                hvd.allreduce_async(torch.ones(length), name="twice")
            hvd.barrier()
        assert hvd.synchronize(handle).tolist() == [1.0] * length
        hvd.allreduce(torch.ones(length), name="twice")


def case_without_names_by_order() -> None:
    tensors = [torch.full((length,), float(number)) for number in range(8) for length in LENGTHS]
    handles = [hvd.allreduce_async(tensor, op=hvd.Sum) for tensor in tensors]
    for tensor, handle in reversed(list(zip(tensors, handles, strict=True))):
        assert torch.equal(hvd.synchronize(handle), tensor * hvd.size())


def case_poll() -> None:
    """False until the last rank has called it; then True, with the result available immediately."""
    if hvd.rank() < hvd.size() - 1:
        handle = hvd.allreduce_async(torch.ones(3), name="polled")
        assert not hvd.poll(handle)
        hvd.barrier()
    else:
        hvd.barrier()
        handle = hvd.allreduce_async(torch.ones(3), name="polled")
    end = time.monotonic() + 60
    while not hvd.poll(handle):
        assert time.monotonic() < end, "never done"
        time.sleep(0.001)
    assert hvd.synchronize(handle).tolist() == [1.0] * 3
    assert hvd.poll(handle)


def case_barrier_waits_for_all() -> None:
    for late in range(hvd.size()):
        if hvd.rank() == late:
            time.sleep(0.1)
            arrived = time.monotonic()
            hvd.barrier()
        else:
            hvd.barrier()
            arrived = 0.0
        left = time.monotonic()
        # All ranks are on one host and share its clock.
        everyone = hvd.allgather(torch.tensor([[arrived, left]], dtype=torch.float64))
        assert float(everyone[:, 1].min()) >= float(everyone[:, 0].max())


def case_not_a_handle() -> None:
    with raises(ValueError, "takes the handle"):
        hvd.synchronize(3)


def case_same_order_runs_without_negotiation() -> None:
    with hvd.same_order():
        for length in LENGTHS:
            tensor = torch.full((length,), float(hvd.rank()))
            assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
            assert tensor.unique().tolist() == [sum(range(hvd.size()))]
            assert hvd.broadcast(torch.full((length,), hvd.rank()), 0).unique().tolist() == [0]
            assert hvd.allgather(torch.tensor([hvd.rank()])).tolist() == list(range(hvd.size()))
    hvd.allreduce(torch.ones(1), name="after")


if __name__ == "__main__":
    run(globals())
