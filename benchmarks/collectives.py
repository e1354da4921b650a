"""Collectives of two ranks on this machine, CPU, against other libraries. The contestants take turns.

    python benchmarks/collectives.py [allreduce] [small] [broadcast] [batch_norm] [--runs 9] [--quick] [--json]

- ``allreduce``: float32 arrays; cloudtrain's, negotiated by name and with ``same_order()`` as the optimizer uses it,
  against plain ``torch.distributed`` (Gloo), mpi4py (Open MPI), Horovod, and a copy of the array in memory, which is a
  bound for an allreduce of two ranks. On one host, ranks of MPI and of cloudtrain communicate through shared memory,
  those of Gloo over TCP. mpi4py, whose small messages never leave C, is faster at 4 KB and 1 MB.
- ``small``: the latency of what waits for the negotiation and little else. ``broadcast_object`` and
  ``allgather_object`` also pickle and authenticate.
- ``broadcast``: the parameters of a model, against a ``broadcast`` for each tensor, all of them started before the
  first wait, and against the way in which ``DistributedDataParallel`` copies a model at its start, which needs no
  negotiation and compares nothing.
- ``batch_norm``: the time per layer and step, forward and backward, of `SyncBatchNorm` and of `BatchNorm1d`. The inputs
  are small, so that the exchanges take most of the time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.distributed as dist
from _common import Report
from _ranks import has_horovod, run_parts_in_ranks, take_turns
from torch import Tensor, nn

import cloudtrain.distributed.torch as hvd

SIZES = {"4 KB": 4 << 10, "1 MB": 1 << 20, "25 MB": 25 << 20, "100 MB": 100 << 20}
BYTES_A_TURN, MOST_CALLS_A_TURN = 400 << 20, 200
LARGE_BYTES = 16 << 20
MODELS = {"1,000 of 4 KB": (1000, 1000), "400 of 250 KB": (400, 62_500), "20 of 20 MB": (20, 5_000_000)}
"""The number of tensors, and the numbers in each."""
DDP_BUFFER_BYTES = 250 << 20
LAYERS, CHANNELS = 16, 64


def allreduce(report: Report, given: argparse.Namespace) -> None:
    for size, count in [*SIZES.items()][: 1 if given.quick else None]:
        calls = max(3, min(MOST_CALLS_A_TURN, BYTES_A_TURN // count))
        seconds = take_turns(sums(torch.zeros(count // 4)), calls, given.runs)
        report.add_all(f"allreduce of {size}", seconds)


def sums(array: Tensor) -> dict[str, Callable[[], object]]:
    """The ways to sum ``array`` over the ranks in place. It contains only zeros, which stay zeros."""

    def in_order() -> None:
        with hvd.same_order():
            hvd.allreduce_(array, op=hvd.Sum)

    found: dict[str, Callable[[], object]] = {
        "cloudtrain, by name": lambda: hvd.allreduce_(array, name="array", op=hvd.Sum),
        "cloudtrain, same_order": in_order,
        "torch.distributed": lambda: dist.all_reduce(array),
    }
    if has_horovod():
        import horovod.torch as horovod
        from mpi4py import MPI

        view = array.numpy()
        found["mpi4py"] = lambda: MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, view)
        found["Horovod"] = lambda: horovod.allreduce_(array, name="array", op=horovod.Sum)
    other = torch.empty_like(array)
    found["memory copy"] = lambda: other.copy_(array)
    return found


def small(report: Report, given: argparse.Namespace) -> None:
    floats, settings, large = torch.zeros(16), {"lr": 0.1, "epoch": 3, "name": "run"}, bytes(LARGE_BYTES)
    contestants: dict[str, Callable[[], object]] = {
        "allreduce of 16 floats": lambda: hvd.allreduce_(floats, name="floats", op=hvd.Sum),
        "broadcast_object of a small dict": lambda: hvd.broadcast_object(settings, name="settings"),
        "allgather_object of a small dict": lambda: hvd.allgather_object(settings, name="settings"),
    }
    seconds = take_turns(contestants, 300, given.runs)
    name = f"broadcast_object of {LARGE_BYTES >> 20} MiB"
    seconds |= take_turns({name: lambda: hvd.broadcast_object(large, name="large")}, 10, given.runs)
    for what, took in seconds.items():
        report.add(what, "cloudtrain", took)


def broadcast(report: Report, given: argparse.Namespace) -> None:
    def one_by_one(tensors: list[Tensor]) -> None:
        for handle in [hvd.broadcast_async_(tensor, 0, str(n)) for n, tensor in enumerate(tensors)]:
            handle.wait()

    for model, (count, length) in [*MODELS.items()][: 1 if given.quick else None]:
        tensors = [torch.full((length,), float(hvd.rank())) for _ in range(count)]
        contestants = {
            "`broadcast_parameters`": lambda tensors=tensors: hvd.broadcast_parameters(tensors, 0),
            "a `broadcast` for each": lambda tensors=tensors: one_by_one(tensors),
            "as DDP": lambda tensors=tensors: dist._broadcast_coalesced(
                dist.group.WORLD, tensors, DDP_BUFFER_BYTES, 0
            ),
        }
        report.add_all(f"broadcast of {model}", take_turns(contestants, 3, given.runs))


def batch_norm(report: Report, given: argparse.Namespace) -> None:
    inputs = torch.randn(8, CHANNELS)

    def step(kind: Callable[[int], nn.Module]) -> Callable[[], None]:
        model = nn.Sequential(*(kind(CHANNELS) for _ in range(LAYERS)))
        return lambda: model(inputs).sum().backward()

    steps = {"SyncBatchNorm": step(hvd.SyncBatchNorm), "BatchNorm1d": step(nn.BatchNorm1d)}
    for who, took in take_turns(steps, 20, given.runs).items():
        report.add("batch norm, per layer and step", who, [each / LAYERS for each in took])


if __name__ == "__main__":
    parts = {"allreduce": allreduce, "small": small, "broadcast": broadcast, "batch_norm": batch_norm}
    run_parts_in_ranks(__doc__, parts, runs=9)
