"""A job on linked hosts: `cloudtrain.runtime` as process 1 of each, as every cluster starts it."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from network import Machine, Program

import cloudtrain
from cloudtrain.contract import FailureReport, Paths, encode_hyperparameters

LAUNCHERS = {
    "torchrun": {"sagemaker_torch_distributed_enabled": True, "sagemaker_processes_per_host": 2},
    "processes": {"sagemaker_processes_enabled": True, "sagemaker_processes_per_host": 2},
}
"""The platform's hyperparameters that ask for a launcher, with two ranks on each host."""


class HostPart:
    """What runs on one host, and what it leaves."""

    def __init__(self, machine: Machine, base: Path) -> None:
        self.name = machine.name
        self.paths = Paths(base)
        self.log = base / "log.txt"
        self.machine = machine
        self.program: Program

    def start(self, python: str, environment: Mapping[str, str]) -> None:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.paths.base),
            "PYTHONPATH": str(Path(cloudtrain.__file__).parents[1]),
            "SAGEMAKER_BASE_DIR": str(self.paths.base),
            **environment,
        }
        with self.log.open("wb") as output:
            self.program = self.machine.start(
                [python, "-m", "cloudtrain.runtime"], cwd=self.paths.base, env=env, output=output
            )

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def failure(self) -> FailureReport:
        return FailureReport.from_json(self.paths.failure_report.read_text())


class HostsJob:
    """A script on several hosts. It is ended, if it still runs, when the test ends.

    Args:
        script: the entry point's text.
        launch: hyperparameters of the platform, see `LAUNCHERS`.
        hyperparameters: the script's own.
        python: the interpreter of runtime and ranks.
    """

    def __init__(
        self,
        machines: Sequence[Machine],
        folder: Path,
        script: str,
        launch: Mapping[str, Any],
        *,
        hyperparameters: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        self.parts = [HostPart(machine, folder / machine.name) for machine in machines]
        values = {"sagemaker_program": "train.py", **launch, **(hyperparameters or {})}
        for part in self.parts:
            part.paths.make()
            (part.paths.code / "train.py").write_text(textwrap.dedent(script))
            documents = {
                "hyperparameters": encode_hyperparameters(values),
                "resourceconfig": {
                    "current_host": part.name,
                    "hosts": [machine.name for machine in machines],
                    "network_interface_name": "eth0",
                },
            }
            for name, document in documents.items():
                (part.paths.input_config / f"{name}.json").write_text(json.dumps(document))
        self.started_at = time.monotonic()
        for part in self.parts:
            part.start(python, {"CLOUDTRAIN_STOP_GRACE": "20", **(environment or {})})

    def close(self) -> None:
        for part in self.parts:
            part.program.kill()

    def part(self, name: str) -> HostPart:
        """What runs on the host of this name."""
        [part] = [part for part in self.parts if part.name == name]
        return part

    def output(self) -> str:
        """What all hosts have said so far."""
        return "".join(part.output() for part in self.parts)

    def wait_for(self, text: str, count: int, timeout: float = 60) -> None:
        """Until the ranks have said ``text`` ``count`` times."""
        deadline = time.monotonic() + timeout
        while self.output().count(text) < count:
            assert time.monotonic() < deadline, (
                f"no {count} times {text!r} within {timeout} s:\n{self.output()}"
            )
            time.sleep(0.02)

    def wait(self, timeout: float = 60) -> list[int]:
        """The exit code of each host. Raises subprocess.TimeoutExpired where one takes longer."""
        deadline = time.monotonic() + timeout
        return [part.program.wait(max(0.1, deadline - time.monotonic())) for part in self.parts]

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.started_at


class StartJob(Protocol):
    """The fixture ``start_job``; ``options`` are those of `HostsJob`."""

    def __call__(self, script: str, launch: dict[str, Any], hosts: int = 2, **options: Any) -> HostsJob: ...
