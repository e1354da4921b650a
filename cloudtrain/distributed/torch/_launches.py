"""Handles of collectives, and collectives that all ranks launch in the same order, without negotiation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Work

from cloudtrain.distributed.negotiation.client import Negotiation, SequenceNumbers
from cloudtrain.distributed.reduce_op import ReduceOp
from cloudtrain.distributed.torch import _gpu_times, _state
from cloudtrain.distributed.torch._failures import check_alive, check_ended, collective_errors
from cloudtrain.distributed.torch._ops import dtype_name
from cloudtrain.distributed.torch._state import Context
from cloudtrain.distributed.torch._thread_work import StreamWork, ThreadWork
from cloudtrain.observe.heartbeat import enter_collective, leave_collective
from cloudtrain.observe.timeline import recorder
from cloudtrain.observe.timeline.recorder import Operation


class Handle:
    """An asynchronous collective, for `synchronize` and `poll`. Calling it waits for the result too.

    Args:
        label: the operation's name in errors.
        work: the backend's work, or the negotiation that precedes it; None if there is nothing to wait for.
        finish: returns the result once the work is done.
        operation: its record in the timeline.
    """

    def __init__(
        self,
        label: str,
        work: Work | CombinedWork | Negotiation | None,
        finish: Callable[[], Any],
        operation: Operation | None = None,
    ) -> None:
        self._label = label
        self._operation = operation
        self._work = work
        self._finish: Callable[[], Any] | None = finish
        self._output: Any = None

    def done(self) -> bool:
        """Whether `wait` would return immediately."""
        work: Any = self._work
        if isinstance(work, Negotiation):
            if not work.started:
                return False
            negotiation, work = work, work.work
            if work is None or work.is_completed():
                _state.current().client.release(negotiation)
        return work is None or bool(work.is_completed())

    def wait(self) -> Any:
        """Wait for the result. Further calls return the same result. Raises CollectiveError."""
        finish = self._finish
        if finish is not None:
            recorder.wait_for(lambda: self._complete(finish), self._label, self._operation)
        return self._output

    __call__ = wait

    def _complete(self, finish: Callable[[], Any]) -> None:
        work: Any = self._work
        enter_collective()
        try:
            with collective_errors(self._label):
                if isinstance(work, Negotiation):
                    work = _state.current().client.wait(work)
                if work is not None:
                    work.wait()
                    check_ended(self._label, work)
        finally:
            leave_collective()
        if self._operation is not None:
            _gpu_times.poll()
            if self._operation.ends_when_waited:
                self._operation.end()
        self._output = finish()
        self._finish = self._work = self._operation = None

    def then(self, change: Callable[[Any], Any]) -> Handle:
        """Apply ``change`` to the result; returns this handle."""
        finish = self._finish
        assert finish is not None
        self._finish = lambda: change(finish())
        return self


class CombinedWork:
    """Several works as one."""

    def __init__(self, works: list[Any]) -> None:
        self.works = works

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self.works)

    def wait(self) -> None:
        for work in self.works:
            work.wait()


def record_end(
    operation: Operation, work: Any, group: Any, device: torch.device | None, keep: Any = None
) -> None:
    """Record the end of ``operation`` when ``work`` ends. Called on the stream that has launched it.

    For GPU tensors, the work of a thread or of Gloo counts as ended when a wait for it returns.

    Args:
        work: as for `Handle`.
        group: the process group that does the work, unless it is `ThreadWork`.
        device: the device of the tensors.
        keep: objects that the work needs until it ends: the tensors, or something that refers to them.
    """
    works = work.works if isinstance(work, CombinedWork) else [work]
    if work is None or not works:
        operation.end()
        return
    first, left = works[0], list(works)
    is_threads = isinstance(first, (ThreadWork, StreamWork))
    operation.carrier = first.carrier if is_threads else _carrier(group, device)
    if device is not None and device.type == "cuda":
        lazy = _state.current().waits_lazily and not is_threads
        if not lazy or not _gpu_times.follow(operation, work, group, device, keep):
            operation.ends_when_waited = True
        return

    def one_ended(*_: object) -> None:
        left.pop()
        if not left:
            operation.began = getattr(first, "began", None)
            operation.end()

    for each in works:
        if isinstance(each, ThreadWork):
            each.when_done(one_ended)
        else:
            each.get_future().add_done_callback(one_ended)


def _carrier(group: Any, device: torch.device | None) -> str:
    """The backend's name, such as ``GLOO`` from ``cpu:gloo,cuda:nccl``."""
    names = dict(item.split(":") for item in dist.get_backend_config(group).split(","))
    return names.get(device.type if device else "cpu", "").upper()


Start = Callable[[Sequence[Tensor]], Any]
"""Starts the transfer of tensors that are sent together; returns the work, or None if it is done."""


def launch(
    label: str,
    group: Any,
    start: Start,
    parts: Sequence[Sequence[Tensor]],
    finish: Callable[[], Any],
    **how: Any,
) -> Handle:
    """Start an operation that all ranks of ``group`` start in the same order, one transfer for each of ``parts``.

    Args:
        label: its name in errors.
        finish: as for `Handle`.
        how: see `_launch`.

    Raises:
        CollectiveError: a rank of the group has ended, or the backend failed.
    """
    work, operation = _launch(label, group, start, parts, **how)
    return Handle(label, work, finish, operation)


def _launch(
    label: str,
    group: Any,
    start: Start,
    parts: Sequence[Sequence[Tensor]],
    *,
    op: ReduceOp | None = None,
    position: str = "",
    kind: str = "allreduce",
    name: str | None = "",
    facts: Mapping[str, Any] | None = None,
    copies: Sequence[tuple[int, int]] = (),
) -> tuple[Any, Operation | None]:
    """The work, which is None if it is done, and its record in the timeline.

    Args:
        op: the operation of a reduction, in which joined ranks take part.
        position: the name in other ranks' errors, if it differs from the label.
        kind, name, facts, copies: see `Operation`.
    """
    tracked = [track(position or label, group, op, part) for part in parts] if op is not None else None
    timeline, operation = recorder.active, None
    if timeline is not None:
        operation = timeline.operation(kind, name or "", facts or {})
        operation.copies = list(copies)
    with collective_errors(label):
        if tracked is None:
            works = [start(part) for part in parts]
        else:
            works = [each.carried_by(start(part)) for each, part in zip(tracked, parts)]
    work = works[0] if len(works) == 1 else CombinedWork(works)
    if operation is not None:
        record_end(operation, work, group, parts[0][0].device if parts else None, parts)
    return work, operation


def launch_now(label: str, group: Any, start: Start, part: Sequence[Tensor], **how: Any) -> None:
    """`launch` with a single part, and the wait for it in this thread, which costs less than a `Handle`."""
    work, operation = _launch(label, group, start, [part], **how)
    if work is not None:
        with collective_errors(label):
            work.wait()
            check_ended(label, work)
    if operation is not None:
        if operation.ends_when_waited:
            operation.end()
        if recorder.active is not None:
            recorder.active.waited(label, operation.asked)


class Tracked:
    """An allreduce launched without negotiation. It is complete when its work is."""

    def __init__(
        self, context: Context, group: Any, numbers: SequenceNumbers | None, number: int = 0
    ) -> None:
        self._context, self._group, self._numbers, self._number = context, group, numbers, number

    def carried_by(self, work: Any) -> Any:
        """Record that ``work`` carries it out; None if it is done. Returns ``work``."""
        if work is None:
            if self._numbers is not None:
                self._numbers.complete(self._number)
            return None
        if self._numbers is not None:
            self._numbers.carry(self._number, work)
        return self._context.launched(work, self._group)


def track(label: str, group: Any, op: ReduceOp, wires: Sequence[Tensor]) -> Tracked:
    """Record an allreduce of ``wires`` launched without negotiation, so that joined ranks can take part.

    Raises:
        CollectiveError: a rank of the group has ended.
    """
    context = _state.current()
    check_alive(label, group)
    numbers = context.numbers_of(group)  # join is for the global process set only
    if numbers is None or _is_captured(wires[0]):
        return Tracked(context, group, None)
    first = wires[0]
    spec = [op.name, dtype_name(first.dtype), first.device.type, [wire.numel() for wire in wires]]
    return Tracked(context, group, numbers, numbers.add(label, spec))


def _is_captured(wire: Tensor) -> bool:
    """Whether a CUDA graph is being captured. Then nothing runs, and a query of the GPU would be an error."""
    return wire.is_cuda and torch.cuda.is_current_stream_capturing()
