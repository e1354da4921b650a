"""Reads PyTorch's flight recorder in a rank that hangs, to show which collectives it is in.

The recorder (https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html) keeps the last collectives of
every process group, of NCCL and of Gloo. The rank answers its runtime's inquiry with them (`inquiry`), and writes the
recorder's own dump to the job's outputs, for ``torchfrtrace``. The dump is a pickle, which cloudtrain never reads.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from cloudtrain import environment
from cloudtrain.contract.documents import Fields, is_count, parse_json
from cloudtrain.observe import inquiry
from cloudtrain.observe.inquiry import Answer, InGroup

FOLDER = "flight-recorder"
"""The folder for dumps, in the folder of the job's other outputs."""
RECORDERS = {"nccl": "_dump_nccl_trace", "gloo": "_dump_fr_trace"}
"""PyTorch's functions that dump, by backend."""
_SHOWN = 5
"""The most collectives in flight of one backend that the report shows."""
_DONE = "completed"


def watch_groups(module: ModuleType) -> None:
    """Answer the runtime once the script has process groups. ``module`` is ``torch.distributed.distributed_c10d``."""
    begin = getattr(module, "init_process_group", None)
    if begin is None:
        return

    @functools.wraps(begin)
    def init_process_group(*args: Any, **options: Any) -> Any:
        done = begin(*args, **options)
        inquiry.answer_with(answer)  # only now, when the process has other threads anyway
        return done

    module.init_process_group = init_process_group  # type: ignore[attr-defined]


def answer() -> Answer:
    """The collectives that this rank is in. Writes the dumps of the recorders that have recorded something."""
    functions = sys.modules.get("torch._C._distributed_c10d")
    lines: list[str] = []
    groups: dict[str, InGroup] = {}
    for backend, name in RECORDERS.items():
        dump = getattr(functions, name, None)
        as_json = getattr(functions, f"{name}_json", None)
        if dump is None or as_json is None:
            continue
        try:
            entries = _entries(as_json())
            if entries:
                lines += summary(backend, entries)
                groups.update(by_group(backend, entries))
                _keep(backend, dump())
        except (ValueError, OSError) as error:
            lines.append(f"{backend}: the flight record cannot be read or kept: {error}")
    return Answer("\n".join(lines), groups)


def _keep(backend: str, dump: bytes) -> None:
    folder = environment.output_data_dir() / FOLDER / backend
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank_{environment.rank()}"
    unfinished = path.with_name(f".{path.name}")  # the rank may be killed now
    unfinished.write_bytes(dump)
    os.replace(unfinished, path)


def _entries(trace: str | bytes) -> list[Mapping[str, Any]]:
    """The collectives of a recorder, the oldest first. Raises ValueError if it is damaged."""
    entries = Fields(parse_json(trace)).items("entries", ())
    return [entry for entry in entries if isinstance(entry, Mapping)]


def summary(backend: str, entries: list[Mapping[str, Any]]) -> Iterator[str]:
    """Lines about the collectives in flight, for people."""
    in_flight = [each for each in entries if _is_in_flight(each)]
    yield f"{backend}: {len(in_flight)} of the last {len(entries)} collectives in flight"
    for entry in in_flight[:_SHOWN]:
        number, state = entry.get("op_id"), entry.get("state")
        yield f"  {_call(entry)}, {state}, number {number} of group {_group(entry)}"
    if len(in_flight) > _SHOWN:
        yield f"  and {len(in_flight) - _SHOWN} more"


def by_group(backend: str, entries: list[Mapping[str, Any]]) -> dict[str, InGroup]:
    """The progress of this rank in each process group. Point-to-point messages are left out."""
    found: dict[str, InGroup] = {}
    for entry in entries:
        number: Any = entry.get("collective_seq_id")
        if entry.get("is_p2p") or not is_count(number):
            continue
        group = f"{backend} {_group(entry)}"
        before = found.get(group, InGroup())
        waits, call = before.waits, before.call
        if _is_in_flight(entry) and (not waits or number < waits):
            waits, call = number, _call(entry)
        found[group] = InGroup(max(before.entered, number), waits, call)
    return found


def _is_in_flight(entry: Mapping[str, Any]) -> bool:
    return not entry.get("retired") and entry.get("state") != _DONE


def _call(entry: Mapping[str, Any]) -> str:
    """The text for a collective, such as ``nccl:all_reduce of Float[20]``."""
    inputs = zip(_list(entry, "input_dtypes"), _list(entry, "input_sizes"))
    shapes = ", ".join(f"{dtype}{shape}" for dtype, shape in inputs)
    return f"{entry.get('profiling_name')} of {shapes}" if shapes else str(entry.get("profiling_name"))


def _group(entry: Mapping[str, Any]) -> str:
    return " ".join(map(str, _list(entry, "process_group")))


def _list(entry: Mapping[str, Any], name: str) -> list[Any]:
    value = entry.get(name)
    return value if isinstance(value, list) else []
