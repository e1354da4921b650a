"""Handles of asynchronous collectives."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.distributed import Work

from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.negotiation.client import Negotiation
from cloudtrain.distributed.torch import _gpu_times, _state
from cloudtrain.distributed.torch._failures import check_ended, collective_error
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
            if isinstance(work, Negotiation):
                work = _state.current().client.wait(work)
            if work is not None:
                work.wait()
                check_ended(self._label, work)
        except CollectiveError:
            raise
        except RuntimeError as error:
            raise collective_error(self._label, error) from error
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

    The work of a thread on a GPU, or of Gloo, counts as ended when it is waited for.

    Args:
        work: as for `Handle`.
        group: the process group that does the work, unless it is `ThreadWork`.
        device: of the tensors.
        keep: what the work needs until it ends: the tensors, or what refers to them.
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
