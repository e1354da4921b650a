"""The processors of this host that the process may use, and the cores of its Trainium or Inferentia accelerators."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path


def cpu_count(processes: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Processors that this process may use at the same time, at least 1.

    A container with a limit of 1.5 processors gets 2: the kernel would throttle more threads than that.

    Args:
        processes: the folder of the proc file system.
        groups: the folder below which the control groups are mounted (cgroups(7)).
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *(math.ceil(limit) for limit in _limits(processes, groups))]))


def _limits(processes: Path, groups: Path) -> Iterator[float]:
    """The limits of this process's control group, and of those above it."""
    try:
        lines = (processes / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):  # version 1
            root = groups / "cpu"
        elif not controllers:  # version 2
            root = groups
        else:
            continue
        # in a container, the path may be that of the machine, although the group is mounted as the root
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts), -1, -1):
            with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
                yield _limit(root.joinpath(*parts[:depth]), is_first=bool(controllers))


def _limit(group: Path, *, is_first: bool) -> float:
    """The processors that one group may use. Raises OSError or ValueError if it has no limit."""
    if is_first:
        quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    else:
        quota, period = (group / "cpu.max").read_text().split()
    limit = int(quota) / int(period)  # "max" is not a number
    if limit <= 0:
        raise ValueError
    return limit


_CORES = {"inf1": 4, "inf2": 2, "trn1": 2, "trn1n": 2}
"""Cores of each device, by family. Newer devices have `_NEWER_CORES` cores."""

_NEWER_CORES = 8
"""Physical cores of a Trainium2 device, and of newer ones."""

_LOGICAL = "NEURON_LOGICAL_NC_CONFIG"
"""The variable with the number of physical cores that form one logical core. The Neuron runtime's default is 2."""

_TOOLS = "/opt/aws/neuron/bin"
_SECONDS = 30


def neuron_core_count(
    instance_type: str | None, environ: Mapping[str, str] = os.environ, devices: Path = Path("/dev")
) -> int:
    """Cores that programs on this host see: SageMaker's toolkit starts as many ranks. 0 without devices.

    ``neuron-ls`` counts them, as for the toolkit; where it is not installed, the instance type's family determines the
    cores of a device. From Trainium2 on, programs see logical cores: 64 on an ``ml.trn2.48xlarge``.
    """
    family = re.sub(r"^ml[._]", "", instance_type or "").partition(".")[0]
    found = len([device for device in devices.glob("neuron*") if device.name[6:].isdigit()])
    if found and re.match(r"trn[2-9]", family):
        grouped = environ.get(_LOGICAL, "")
        return found * _NEWER_CORES // (int(grouped) if grouped in ("1", "2") else 2)
    path = os.pathsep.join([environ.get("PATH", os.defpath), _TOOLS])
    listed = _listed_cores(shutil.which("neuron-ls", path=path) or "")
    return listed or found * _CORES.get(family, 2)


@lru_cache(maxsize=1)
def _listed_cores(program: str) -> int:
    """The cores that ``neuron-ls`` lists; 0 if it is missing or fails."""
    if not program:
        return 0
    try:
        output = subprocess.run([program, "-j"], capture_output=True, check=True, timeout=_SECONDS).stdout
        return sum(int(device.get("nc_count", 0)) for device in json.loads(output))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError, AttributeError):
        return 0
