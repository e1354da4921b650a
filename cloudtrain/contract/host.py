"""This host among the hosts of the job, as described by ``resourceconfig.json``."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
        hosts = tuple(sorted(given.texts("hosts"), key=_natural_key))
        if len(hosts) > MOST_HOSTS or not all(map(is_program_text, hosts)):
            raise ValueError("hosts are not names of hosts")
        if current not in hosts:
            raise ValueError(f"current_host {current[:100]!r} is not one of {list(hosts[:10])}")
        for name in ("network_interface_name", "current_instance_type", "current_group_name"):
            if not is_program_text(given.text(name, "")):
                raise ValueError(f"{name} is not a text that a program can receive")
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


def _natural_key(name: str) -> tuple[str, int]:
    """Sorts ``algo-10`` after ``algo-9``."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :][:18] or -1)


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


def cpu_count() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpu_count(environ: Mapping[str, str] = os.environ) -> int:
    """NVIDIA GPUs that a rank on this host would see. Does not load CUDA."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([device for device in visible.split(",") if device.strip() not in ("", "-1")])
    driver = Path("/proc/driver/nvidia/gpus")
    if driver.is_dir():
        return len(list(driver.iterdir()))
    return len([device for device in Path("/dev").glob("nvidia*") if device.name[6:].isdigit()])


def neuron_count() -> int:
    """AWS Neuron devices of this host."""
    return len([device for device in Path("/dev").glob("neuron*") if device.name[6:].isdigit()])
