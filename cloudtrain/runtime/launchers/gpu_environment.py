"""The variables and libraries that ranks need on their host's GPUs or CPUs, and a check for hosts whose GPUs differ."""

from __future__ import annotations

import contextlib
import glob
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from cloudtrain._system.patterns import pattern
from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.observe import steady

COMPAT_FOLDER = Path("/usr/local/cuda/compat")
_NOT_SUPPORTED = pattern(r"GeForce|TITAN")
"""Models on which CUDA fails with the libraries in `COMPAT_FOLDER` (error 804). Without these libraries, CUDA runs on
every driver for its major version."""
_DRIVER_VERSIONS = ("/sys/module/nvidia/version", "/proc/driver/nvidia/version")


def compatibility_folder(folder: Path = COMPAT_FOLDER, root: Path = Path("/")) -> str | None:
    """The folder for ``LD_LIBRARY_PATH`` if its libraries are for a newer driver than this host's, and the host's GPUs
    support them; otherwise None."""
    if any(_NOT_SUPPORTED.search(model) for model in _models(root)):
        return None
    brought = [_major(path.name) for path in folder.glob("libcuda.so.*.*")]
    if not brought:
        return None
    for path in _DRIVER_VERSIONS:
        try:
            driver = _major((root / path.lstrip("/")).read_text())
        except OSError:
            continue
        return str(folder) if 0 < driver < max(brought) else None
    return None


def _models(root: Path) -> list[str]:
    """The models of this host's GPUs, if the driver lists them."""
    found = []
    for path in (root / "proc/driver/nvidia/gpus").glob("*/information"):
        with contextlib.suppress(OSError):
            found += re.findall(r"^Model:\s*(.+)", path.read_text(errors="replace"), re.MULTILINE)
    return found


def _major(text: str) -> int:
    """The first part of the driver's version in ``text``: 580 of ``libcuda.so.580.95.05``; 0 if there is none."""
    match = re.search(r"\b(\d{3})\.\d+", text)
    return int(match[1]) if match else 0


_SIZES = {
    "g4dn": (8, 12, 16),
    "g5": (8, 12, 16, 24, 48),
    "g6": (8, 12, 16, 24, 48),
    "g6e": (8, 12, 16, 24, 48),
    "g7": (8, 12, 24, 48),
    "g7e": (8, 12, 24, 48),
    "gr6": (8,),
    "p3dn": (24,),
    "p4d": (24,),
    "p4de": (24,),
    "p5": (4, 48),
    "p5e": (48,),
    "p5en": (48,),
    "p6-b200": (48,),
    "p6-b300": (48,),
    "p6e-gb200": (36,),
    "trn1": (32,),
    "trn1n": (32,),
    "trn2": (3, 48),
    "trn2u": (48,),
}
"""The instance types with EFA: families, with their sizes in ``xlarge``."""

_WITH_RDMA = (
    "p4d",
    "p4de",
    "p5",
    "p5e",
    "p5en",
    "p6-b200",
    "p6-b300",
    "p6e-gb200",
    "trn1",
    "trn1n",
    "trn2",
    "trn2u",
)
"""Families whose adapter reads and writes the accelerators' memory. Older versions of libfabric need a variable for
that."""


def efa_variables(instance_type: str | None) -> dict[str, str]:
    """Default variables for ranks on a host of this instance type, such as ``ml.p4d.24xlarge``; none without EFA."""
    match = re.fullmatch(r"(?:ml\.)?(?P<family>[a-z0-9-]+)\.(?P<size>\d+)xlarge", instance_type or "")
    if not match or int(match["size"]) not in _SIZES.get(match["family"], ()):
        return {}
    variables = {
        "FI_PROVIDER": "efa",
        "NCCL_PROTO": "simple",  # the other protocols rely on data that arrives in order
    }
    if match["family"] in _WITH_RDMA:
        variables["FI_EFA_USE_DEVICE_RDMA"] = "1"
        variables["RDMAV_FORK_SAFE"] = "1"  # the workers of a DataLoader are forked
    return variables


ACCELERATORS = (
    "/dev/kfd",  # AMD
    "/dev/neuron[0-9]*",
    "/dev/accel*",  # Gaudi, and TPUs
    "/dev/vfio/[0-9]*",  # TPUs
    "/dev/davinci[0-9]*",  # Ascend
    "/dev/cambricon_dev[0-9]*",
    "/dev/musa*",
    "/usr/lib*/libze_loader.so.1",  # Intel: every laptop has its device, but only a host that computes has this
    "/usr/lib*/*-linux-gnu/libze_loader.so.1",
)
"""Files of a host with accelerators other than NVIDIA's."""


def cpu_variables(ranks: int, gpus: int, accelerators: Sequence[str] = ACCELERATORS) -> dict[str, str]:
    """``ACCELERATE_USE_CPU`` for several ranks on hosts without accelerators.

    Accelerate, and therefore the Trainer of Transformers, connects ranks on CPUs only if this variable is set.
    Otherwise, each rank is rank 0 of 1, trains on all the data, and overwrites the files of the others.

    Args:
        ranks: the number of ranks on all hosts.
        gpus: the number of this host's NVIDIA GPUs that are visible to a rank.
        accelerators: patterns of files that exist on hosts with other accelerators.
    """
    if ranks < 2 or gpus or any(glob.glob(pattern) for pattern in accelerators):
        return {}
    return {"ACCELERATE_USE_CPU": "true"}


def differing_gpus(found: Mapping[str, tuple[int, int]]) -> FailureReport | None:
    """A failure report if the hosts have different GPUs; None if their ranks can train together.

    Without this check, some ranks would have no GPU while others wait for them in NCCL, or the hosts would disagree on
    the number of ranks.

    Args:
        found: the numbers of GPUs and ranks of each host.
    """
    gpus = {count for count, _ in found.values()}
    ranks = {count for _, count in found.values()}
    if len(ranks) <= 1 and not any(min(gpus) < count <= max(gpus) for count in ranks):
        return None
    by_count: dict[int, list[str]] = {}
    for host, (count, _) in found.items():
        by_count.setdefault(count, []).append(host)
    differences = "; ".join(
        f"{count} on {', '.join(hosts[:5])}{f' and {len(hosts) - 5} more' if hosts[5:] else ''}"
        for count, hosts in sorted(by_count.items(), reverse=True)
    )
    fewest = min(by_count)
    return FailureReport(
        FailureClass.PLATFORM,
        f"the hosts have different numbers of GPUs: {differences}",
        "Use hosts with equal GPUs (instance_type), or name the instance groups of the distribution"
        + (f", or set processes_per_host to {fewest} or less." if fewest else "."),
        host=by_count[fewest][0],
        phase="launch",
        time=steady.now(),
    )
