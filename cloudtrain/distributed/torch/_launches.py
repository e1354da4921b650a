"""Collectives that all ranks launch in the same order by themselves, without negotiation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

import torch
from torch import Tensor

from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.negotiation.client import SequenceNumbers
from cloudtrain.distributed.reduce_op import ReduceOp
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._failures import check_alive, check_ended, collective_error
from cloudtrain.distributed.torch._handle import CombinedWork, Handle, record_end
from cloudtrain.distributed.torch._ops import dtype_name
from cloudtrain.distributed.torch._state import Context
from cloudtrain.observe.timeline import recorder
from cloudtrain.observe.timeline.recorder import Operation

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
        op: of a reduction; joined ranks then take part.
        position: its name for other ranks, if that differs from the label.
        kind, name, facts, copies: see `Operation`.
    """
    tracked = [track(position or label, group, op, part) for part in parts] if op is not None else None
    timeline, operation = recorder.active, None
    if timeline is not None:
        operation = timeline.operation(kind, name or "", facts or {})
        operation.copies = list(copies)
    try:
        if tracked is None:
            works = [start(part) for part in parts]
        else:
            works = [each.carried_by(start(part)) for each, part in zip(tracked, parts)]
    except CollectiveError:
        raise
    except RuntimeError as error:
        raise collective_error(label, error) from error
    work = works[0] if len(works) == 1 else CombinedWork(works)
    if operation is not None:
        record_end(operation, work, group, parts[0][0].device if parts else None, parts)
    return work, operation


def launch_now(label: str, group: Any, start: Start, part: Sequence[Tensor], **how: Any) -> None:
    """`launch` with a single part, and the wait for it in this thread, which costs less than a `Handle`."""
    work, operation = _launch(label, group, start, [part], **how)
    if work is not None:
        try:
            work.wait()
            check_ended(label, work)
        except CollectiveError:
            raise
        except RuntimeError as error:
            raise collective_error(label, error) from error
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
        """``work`` does it; None if it is done. Returns ``work``."""
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
    """Whether a CUDA graph is captured: then nothing runs, and a query of the GPU would be an error."""
    return wire.is_cuda and torch.cuda.is_current_stream_capturing()
