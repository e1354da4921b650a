"""The hosts that instance types are: GPUs, their memory, and the network. `hardware.json` has sources and date."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cloudtrain.errors import InvalidJob, nearest

GBIT, GB = 1e9 / 8, 1e9
"""In bytes per second."""


@dataclass(frozen=True)
class Hardware:
    """One host. Bandwidths are in bytes per second and direction."""

    gpu: str
    gpus: int
    gpu_memory: int
    """Of one GPU, in GiB."""
    network: float
    """The line rate of the host's network."""
    link: float
    """Of the links between its GPUs, for each GPU."""
    tflops: float
    """Of one GPU: dense 16-bit tensor operations, in 10^12 per second."""
    memory_rate: float
    """Of one GPU's memory, in GB per second."""


def hardware(instance_type: str) -> Hardware | None:
    """A host of SageMaker's ``instance_type``; None if the table does not have it."""
    row = _table()["types"].get(instance_type)
    if row is None:
        return None
    gpu = _table()["gpus"][row["gpu"]]
    return Hardware(
        row["gpu"], row["gpus"], row["gpu_memory_gib"], row["network_gbit"] * GBIT,
        gpu["link_gb"] * GB, gpu["tflops"], gpu["memory_gb"],
    )  # fmt: skip


def instance_types(gpu: str = "") -> list[str]:
    """SageMaker's instance types with GPUs; with ``gpu``, those that have this one."""
    return [name for name, row in _table()["types"].items() if not gpu or row["gpu"] == gpu]


def gpu_name(text: str) -> str:
    """The name of a GPU in the table, from one in any case. Raises InvalidJob, with the nearest name."""
    names: dict[str, str] = {name.lower(): name for name in _table()["gpus"]}
    if text.lower() not in names:
        raise InvalidJob(
            f"unknown GPU {text!r}",
            hint=nearest(text.upper(), [*names.values()]),
        )
    return names[text.lower()]


@cache
def _table() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(
        Path(__file__).with_name("hardware.json").read_text(encoding="utf-8")
    )
    return found
