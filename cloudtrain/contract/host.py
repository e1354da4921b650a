"""This host among the hosts of the job, as described by ``resourceconfig.json``."""

from __future__ import annotations

import itertools
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain.contract.documents import MOST_HOSTS, Fields, is_program_text, parse_json


@dataclass(frozen=True)
class Host:
    """``current`` is one of ``hosts``, which every host lists in the same order. The first host is the leader."""

    current: str
    hosts: tuple[str, ...]
    network_interface: str = "eth0"
    instance_type: str | None = None
    group: str | None = None
    groups: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Host:
        """From the content of ``resourceconfig.json``.

        Raises:
            ValueError: a field has the wrong type, or the current host is not one of the hosts.
        """
        given = Fields(document)
        current, groups = given.text("current_host"), given.objects("instance_groups", ())
        hosts = _in_order(given.texts("hosts"))
        if len(hosts) > MOST_HOSTS or not all(map(is_program_text, hosts)):
            raise ValueError("hosts are not names of hosts")
        if current not in hosts:
            raise ValueError(f"current_host {current[:100]!r} is not one of {list(hosts[:10])}")
        for name in ("network_interface_name", "current_instance_type", "current_group_name"):
            if not is_program_text(given.text(name, "")):
                raise ValueError(f"{name} is not a string that a program can receive")
        for group in groups:
            group.text("instance_group_name", None)
            group.text("instance_type", None)
            group.texts("hosts", ())
        return cls(
            current=current,
            hosts=hosts,
            network_interface=given.text("network_interface_name", None) or "eth0",
            instance_type=given.text("current_instance_type", None),
            group=given.text("current_group_name", None),
            groups=tuple(given.items("instance_groups", ())),
        )

    def to_document(self) -> dict[str, Any]:
        """The inverse of `from_document`."""
        document: dict[str, Any] = {
            "current_host": self.current,
            "hosts": list(self.hosts),
            "network_interface_name": self.network_interface,
        }
        if self.instance_type:
            document["current_instance_type"] = self.instance_type
        if self.group:
            document["current_group_name"] = self.group
        if self.groups:
            document["instance_groups"] = [dict(group) for group in self.groups]
        return document

    @classmethod
    def alone(cls) -> Host:
        """A job of one host, for a container without a ``resourceconfig.json``."""
        name = socket.gethostname()
        return cls(name, (name,))

    @property
    def rank(self) -> int:
        return self.hosts.index(self.current)

    @property
    def count(self) -> int:
        return len(self.hosts)

    @property
    def leader(self) -> str:
        return self.hosts[0]

    @property
    def leads(self) -> bool:
        return self.current == self.leader


def _in_order(names: Sequence[str]) -> tuple[str, ...]:
    """The hosts in the order of their ranks: as given, except that SageMaker lists ``algo-10`` before ``algo-2``.

    Elsewhere, the order is significant: the user's first host leads, and a scheduler puts neighbours side by side.
    """
    if all(re.fullmatch(r"algo-[0-9]{1,18}", name) for name in names):
        return tuple(sorted(names, key=lambda name: int(name[5:])))
    return tuple(names)


def read_document(path: Path, default: Any) -> Any:
    """The JSON in ``path``, or ``default`` if the file does not exist.

    Raises:
        ValueError: the file cannot be read, or is not JSON; the message names it.
    """
    try:
        return parse_json(path.read_bytes())
    except FileNotFoundError:
        return default
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path} {str(error).replace('it ', '', 1)}") from None


def gpu_count(environ: Mapping[str, str] = os.environ) -> int:
    """NVIDIA GPUs that a rank on this host would see. Does not load CUDA.

    A process sees at most one MIG device, however many there are.
    """
    visible = visible_gpus(environ)
    if not visible:
        return 0
    return 1 if visible[0].startswith(_MIG) or _has_mig_devices() else len(visible)


def visible_gpus(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The GPUs of this host in the notation of ``CUDA_VISIBLE_DEVICES``: numbers, or UUIDs if it names UUIDs.

    Reads the variable as CUDA does: the list ends at the first entry that is not a GPU, such as ``-1`` and
    ``NoDevFiles``, and a list that repeats an entry is empty.
    """
    value = environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return tuple(map(str, range(_machine_gpus())))
    prefix = next((prefix for prefix in (_GPU, _MIG) if value.startswith(prefix)), "")
    if prefix:
        named = [entry.strip() for entry in value.split(",")]
        listed = list(itertools.takewhile(lambda entry: entry.startswith(prefix), named))
    else:
        present = _machine_gpus() or None
        numbers = (_leading_number(entry) for entry in value.split(","))
        listed = [
            str(number)
            for number in itertools.takewhile(lambda number: number in range(present or sys.maxsize), numbers)
        ]
    return tuple(listed) if len(set(listed)) == len(listed) else ()


GPU_SHARE = "CLOUDTRAIN_GPU_SHARE"
"""The variable of a job that shares its hosts with others: ``1/4`` is the second of four equal shares of the GPUs."""


def gpus_of_host(number: int, hosts: int, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that give a host its share of this machine's GPUs, or of those that the job has on it.

    The shares are equal, so that all hosts have equally many ranks. If there are fewer GPUs than hosts, hosts share a
    GPU. A job of one host has all GPUs.
    """
    gpus: Sequence[str] = visible_gpus(environ)
    share = re.fullmatch(r"(\d{1,4})/(\d{1,4})", environ.get(GPU_SHARE) or "")
    if not gpus or (hosts == 1 and not share):
        return {}
    taken = {GPU_SHARE: ""} if share else {}  # a job that a rank starts here gets all GPUs of the rank
    if share:
        gpus = share_of(gpus, int(share[1]), max(int(share[2]), 1))
    return {"CUDA_VISIBLE_DEVICES": ",".join(share_of(gpus, number, hosts)), **taken}


def share_of(gpus: Sequence[str], number: int, shares: int) -> Sequence[str]:
    """One of ``shares`` equal shares of some GPUs. It has at least one GPU, which several shares may have in common."""
    size = len(gpus) // shares
    return gpus[number * size :][:size] or (gpus[number % len(gpus)],)


_GPU, _MIG = "GPU-", "MIG-"


def _leading_number(entry: str) -> int:
    """The number that CUDA reads from an entry: ``1gpu`` is 1; -1 if it does not begin with a number."""
    match = re.match(r"\s*\+?(\d+)", entry)
    return int(match[1]) if match else -1


def _machine_gpus() -> int:
    """The GPUs that this machine, or this container, lets its processes open.

    In a container, /proc/driver/nvidia may list all GPUs of the machine, but /dev has only those of the container.
    Without device nodes, NVML is queried: Windows Subsystem for Linux has none, and a machine that has just started may
    not have them yet.
    """
    nodes = [node for node in Path("/dev").glob("nvidia*") if node.name[6:].isdigit()]
    if nodes:
        return len(nodes)
    found = _nvml_gpus()
    if found is not None:
        return found
    listed = Path("/proc/driver/nvidia/gpus")
    if not listed.is_dir() or any(Path(mark).exists() for mark in _CONTAINER_MARKS):
        return 0
    return len(list(listed.iterdir()))


_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io")
"""Files and folders that exist in containers of Docker, Podman or Kubernetes."""


def _nvml_gpus() -> int | None:
    """The GPUs that NVIDIA's management library counts; None without the library, or if it fails."""
    import ctypes

    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2():
            return None
        count = ctypes.c_uint()
        failed = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        nvml.nvmlShutdown()
    except (OSError, AttributeError):
        return None
    return None if failed else count.value


def _has_mig_devices() -> bool:
    """Whether a GPU is divided (Multi-Instance GPU), and this machine or container has one of its parts.

    The first two device nodes are those of the driver.
    """
    nodes = [node.name[10:] for node in Path("/dev/nvidia-caps").glob("nvidia-cap*")]
    own = any(name.isdigit() and int(name) > 2 for name in nodes)
    return own and any(Path("/proc/driver/nvidia/capabilities").glob("gpu*/mig/gi*"))
