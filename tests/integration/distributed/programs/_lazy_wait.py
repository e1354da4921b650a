"""NCCL's semantics on Gloo: waiting for a collective does not block the host, and a kernel never fails.

`install` after ``hvd.init``. From then on an allreduce is a kernel: `wait` on it returns immediately, `is_completed` is
whether it has ended, and `synchronize` is what ``torch.cuda.synchronize`` or ``loss.item()`` are on a GPU. A kernel
whose rank has died runs forever, unless its group is aborted. CPU tensors hold wrong numbers until the kernel has
ended, because nothing orders what reads them after it.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import torch
import torch.distributed as dist
from _cases import DEVICE

from cloudtrain.distributed.torch import _state

_kernels: list[Kernel] = []
_aborted: set[Any] = set()


class Kernel:
    """The work of one collective."""

    def __init__(self, work: Any, group: Any) -> None:
        self._work = work
        self._group = group

    def wait(self, *_: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        if self._group in _aborted:
            return True
        if not self._work.is_completed():
            return False
        try:
            self._work.wait()
        except RuntimeError:  # Gloo noticed that a rank died, and NCCL would not
            return False
        return True

    def get_future(self) -> Any:
        return self._work.get_future()


def synchronize() -> None:
    """Wait on the host until all kernels have ended."""
    if DEVICE != "cpu":
        torch.cuda.synchronize()
    while _kernels:
        if _kernels[0].is_completed():
            _kernels.pop(0)
        else:
            time.sleep(0.001)


def running() -> int:
    """The number of kernels that have not ended."""
    context = _state.current_or_none()
    if DEVICE != "cpu" and context is not None:
        return int(not context.in_flight.ended())
    return sum(not kernel.is_completed() for kernel in _kernels)


def install() -> None:
    """Make this context's waits lazy, as NCCL's are. Does nothing on GPUs."""
    if DEVICE != "cpu":
        return
    context = dataclasses.replace(_state.current(), waits_lazily=True)
    context.memory.clear()  # the shared memory is not for GPU tensors
    _state.set_current(context)
    dist.all_reduce = _all_reduce
    dist.ProcessGroup.abort = lambda group: _aborted.add(group)
    dist.destroy_process_group = _destroy


_real_all_reduce, _real_destroy = dist.all_reduce, dist.destroy_process_group


def _destroy(group: Any = None) -> None:
    """NCCL finishes all work of a group first, unless it was aborted."""
    synchronize()
    _real_destroy(group)


def _all_reduce(tensor: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    kernel = Kernel(_real_all_reduce(tensor, op, group, async_op=True), group)
    _kernels.append(kernel)
    return kernel if async_op else None
