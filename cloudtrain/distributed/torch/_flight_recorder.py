"""The collectives of this process, for the report of a hang: its own records, and PyTorch's flight recorder.

The flight recorder (https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html) keeps the last
collectives of every process group. Its dump goes to the job's outputs, for ``torchfrtrace``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from cloudtrain import environment
from cloudtrain.distributed.torch import _state

FOLDER = "flight-recorder"
"""In the folder of the job's other outputs."""
RECORDERS = {"nccl": "_dump_nccl_trace", "gloo": "_dump_fr_trace"}
"""PyTorch's functions that dump, by backend."""
_SHOWN = 5
"""Collectives in flight of one backend that the report shows."""


def describe() -> str:
    """The collectives that this rank is in, as lines. Writes the dumps of the flight recorders."""
    context = _state.current_or_none()
    if context is None or context.alone:
        return ""
    position = context.client.position()
    lines = []
    for each, where in ((position, ""), (position["layers"], " inside layers")):
        if each["launched"]:
            lines.append(
                f"{each['launched']} collectives launched in the same order{where}, "
                f"{len(each['in flight'])} in flight; the last: {each['at']}"
            )
    lines += [f"not requested by all ranks: {label}" for label in context.client.waiting()]
    for backend, (dump, trace) in _dumps().items():
        lines += _summary(backend, trace)
        folder = environment.output_data_dir() / FOLDER / backend
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"rank_{context.world.rank}").write_bytes(dump)
    return "\n".join(lines)


def _dumps() -> dict[str, tuple[bytes, Mapping[str, Any]]]:
    """The dump and its content as JSON, by backend, of the recorders that have recorded something."""
    found = {}
    for backend, name in RECORDERS.items():
        dump = getattr(torch._C._distributed_c10d, name, None)
        as_json = getattr(torch._C._distributed_c10d, f"{name}_json", None)
        if dump is not None and as_json is not None and (trace := json.loads(as_json())).get("entries"):
            found[backend] = dump(), trace
    return found


def _summary(backend: str, trace: Mapping[str, Any]) -> Iterator[str]:
    entries = trace["entries"]
    in_flight = [each for each in entries if not each.get("retired") and each.get("state") != "completed"]
    yield f"{backend}: {len(in_flight)} of the last {len(entries)} collectives in flight"
    for entry in in_flight[:_SHOWN]:
        inputs = zip(entry.get("input_dtypes", ()), entry.get("input_sizes", ()))
        shapes = ", ".join(f"{dtype}{shape}" for dtype, shape in inputs)
        group = " ".join(entry.get("process_group", ()))
        number = entry.get("op_id")
        yield f"  {entry['profiling_name']} of {shapes}, {entry['state']}, number {number} of group {group}"
    if len(in_flight) > _SHOWN:
        yield f"  and {len(in_flight) - _SHOWN} more"
