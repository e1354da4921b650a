"""The hardware of instance types: GPUs, their memory, and the network. `hardware.json` has the sources and the date."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cloudtrain.errors import InvalidJob, nearest

GBIT, GB = 1e9 / 8, 1e9
"""One Gbit/s and one GB/s, in bytes per second."""


@dataclass(frozen=True)
class Hardware:
    """The hardware of one host. Bandwidths are in bytes per second and direction."""

    gpu: str
    gpus: int
    gpu_memory: int
    """The memory of one GPU, in GiB."""
    network: float
    """The line rate of the host's network."""
    link: float
    """The bandwidth of the links between its GPUs, for each GPU."""
    tflops: float
    """The dense 16-bit tensor operations of one GPU, in 10^12 per second."""
    memory_rate: float
    """The memory bandwidth of one GPU, in GB per second."""


def hardware(instance_type: str) -> Hardware | None:
    """The hardware of SageMaker's ``instance_type``; None if it is not in the table."""
    row = _table()["types"].get(instance_type)
    if row is None:
        return None
    gpu = _table()["gpus"][row["gpu"]]
    return Hardware(
        row["gpu"], row["gpus"], row["gpu_memory_gib"], row["network_gbit"] * GBIT,
        gpu["link_gb"] * GB, gpu["tflops"], gpu["memory_gb"],
    )  # fmt: skip


def instance_types(gpu: str = "") -> list[str]:
    """SageMaker's instance types with GPUs; if ``gpu`` is given, only those with this GPU."""
    return [name for name, row in _table()["types"].items() if not gpu or row["gpu"] == gpu]


def gpu_name(text: str) -> str:
    """The name of a GPU in the table, ignoring case. Raises InvalidJob, with the nearest name, if there is none."""
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
