"""When the work of an operation ends, for the timeline."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from cloudtrain.distributed.torch._handle import Works
from cloudtrain.distributed.torch._thread_work import Turn
from cloudtrain.observe.timeline.operation import Operation


def follow(operation: Operation, work: Any, group: Any, device: torch.device | None) -> None:
    """Note the end of ``operation`` when ``work`` ends; work of a GPU counts as ended when it is waited for.

    Args:
        work: as `Handle` takes it.
        group: the process group by which it is done, where it is no `Turn`.
        device: of the tensors.
    """
    works = work.works if isinstance(work, Works) else [work]
    if work is None or not works:
        operation.end()
        return
    first, left = works[0], list(works)
    if isinstance(first, Turn):
        operation.carrier = first.carrier
    else:
        operation.carrier = _carrier(group, device)
    if device is not None and device.type == "cuda":
        operation.ends_when_waited = True
        return

    def one_ended(*_: object) -> None:
        left.pop()
        if not left:
            operation.began = getattr(first, "began", None)
            operation.end()

    for each in works:
        if isinstance(each, Turn):
            each.when_done(one_ended)
        else:
            each.get_future().add_done_callback(one_ended)


def _carrier(group: Any, device: torch.device | None) -> str:
    """``GLOO`` of ``cpu:gloo,cuda:nccl``, say."""
    names = dict(item.split(":") for item in dist.get_backend_config(group).split(","))
    return names.get(device.type if device else "cpu", "").upper()
