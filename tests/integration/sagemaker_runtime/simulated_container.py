"""A training container on its own host: SageMaker's layout of ``/opt/ml``, and the request's entrypoint."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from host_network import Machine, Program


@dataclass(frozen=True)
class Image:
    """An image. By default, it contains this Python, with cloudtrain and frameworks."""

    path: str = f"{Path(sys.executable).parent}:{os.defpath}"
    """The PATH of its containers."""
    environment: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = (sys.executable, "-m", "cloudtrain.runtime")
    """The default, if the request does not contain one."""


# In a separate mount namespace, with a host name that other hosts cannot resolve.
_ENTER = """
mkdir -p /opt/ml
mount --bind "$1" /opt/ml
hostname container-of-"$(hostname)"
path=$2
shift 2
exec env PATH="$path" "$@"
"""


@dataclass(frozen=True)
class Place:
    """The instance that a container runs on."""

    name: str
    machine: Machine
    instance_type: str
    group: str


@dataclass
class Container:
    """One container and its files."""

    place: Place
    folder: Path
    program: Program = field(init=False)
    _output: threading.Thread = field(init=False)

    @property
    def ml(self) -> Path:
        """The container's ``/opt/ml``."""
        return self.folder / "ml"

    def lay_out(self, request: Mapping[str, Any], places: list[Place]) -> None:
        """Write SageMaker's documents and create its folders."""
        for name in ("input/config", "input/data", "model", "output", "checkpoints"):
            (self.ml / name).mkdir(parents=True)
        for name, content in _documents(request, self.place, places).items():
            (self.ml / "input" / "config" / f"{name}.json").write_text(json.dumps(content))

    def start(self, request: Mapping[str, Any], image: Image, say: Callable[[str], None]) -> None:
        """Start the container; ``say`` receives each line that it prints."""
        algorithm = request["AlgorithmSpecification"]
        command = [
            *algorithm.get("ContainerEntrypoint", image.entrypoint),
            *algorithm.get("ContainerArguments", ()),
        ]
        environment = {
            "PATH": os.defpath,
            "HOME": "/root",
            "TMPDIR": "/var/tmp",  # private to each machine
            "AWS_REGION": "us-east-1",
            "TRAINING_JOB_NAME": request["TrainingJobName"],
            **image.environment,
            **request.get("Environment", {}),
        }
        reading, writing = os.pipe()
        with os.fdopen(writing, "wb") as output:
            self.program = self.place.machine.start(
                ["sh", "-ec", _ENTER, "sh", str(self.ml), image.path, *command],
                cwd=Path("/"),
                env=environment,
                output=output,
            )
        self._output = threading.Thread(target=_read_lines, args=(reading, say), daemon=True)
        self._output.start()

    def end(self) -> int:
        """Wait for the container's end and all of its output; returns the exit code."""
        code = self.program.wait(600)
        self._output.join()
        return code

    def failure(self) -> str:
        """The failure reason that SageMaker reads: the first 1,024 characters of the file."""
        path = self.ml / "output" / "failure"
        return path.read_text(errors="replace")[:1024] if path.exists() else ""


def _read_lines(descriptor: int, say: Callable[[str], None]) -> None:
    with os.fdopen(descriptor, "rb") as output:
        for line in output:
            say(line.decode(errors="replace").rstrip("\n"))


def _documents(request: Mapping[str, Any], place: Place, places: list[Place]) -> dict[str, Any]:
    """The files of ``input/config``."""
    groups: dict[str, dict[str, Any]] = {}
    for other in places:
        group = {"instance_group_name": other.group, "instance_type": other.instance_type, "hosts": []}
        groups.setdefault(other.group, group)["hosts"].append(other.name)
    return {
        "hyperparameters": request.get("HyperParameters", {}),
        "resourceconfig": {
            "current_host": place.name,
            "current_instance_type": place.instance_type,
            "current_group_name": place.group,
            "hosts": [other.name for other in places],
            "instance_groups": list(groups.values()),
            "network_interface_name": "eth0",
        },
        "inputdataconfig": {
            channel["ChannelName"]: _channel(request, channel) for channel in request["InputDataConfig"]
        },
    }


def _channel(request: Mapping[str, Any], channel: Mapping[str, Any]) -> dict[str, str]:
    mode = request["AlgorithmSpecification"]["TrainingInputMode"]
    config = {
        "TrainingInputMode": channel.get("InputMode", mode),
        "S3DistributionType": channel["DataSource"]["S3DataSource"].get(
            "S3DataDistributionType", "FullyReplicated"
        ),
        "RecordWrapperType": channel.get("RecordWrapperType", "None"),
    }
    return {**config, "ContentType": channel["ContentType"]} if "ContentType" in channel else config
