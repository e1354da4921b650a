"""A job on linked hosts, each with `cloudtrain.runtime` as process 1, as in every cluster."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import sysconfig
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from host_network import Machine, Program

import cloudtrain
from cloudtrain.contract import FailureReport, Paths, encode_arguments, encode_hyperparameters
from cloudtrain.link.secret import fresh_secret


@dataclass(frozen=True)
class Launch:
    """How two ranks are started on each host.

    ``values`` are the platform's hyperparameters for the launcher. ``python`` runs the runtime and the ranks; its
    folder is first on the PATH.
    """

    values: Mapping[str, Any]
    python: str = sys.executable
    packages: tuple[str, ...] = ()
    """Additional folders with packages."""

    @property
    def mpirun(self) -> str | None:
        """The mpirun on the job's PATH."""
        return shutil.which("mpirun", path=f"{os.path.dirname(self.python)}:{os.defpath}")


_MPI = {"sagemaker_mpi_enabled": True, "sagemaker_mpi_num_of_processes_per_host": 2}

LAUNCHES = {
    "torchrun": Launch({"sagemaker_torch_distributed_enabled": True, "sagemaker_processes_per_host": 2}),
    "processes": Launch({"sagemaker_processes_enabled": True, "sagemaker_processes_per_host": 2}),
    # the interpreter outside its virtual environment finds Debian's Open MPI 4 instead of the wheel's
    "mpirun-4": Launch(
        _MPI, python=os.path.realpath(sys.executable), packages=(sysconfig.get_path("purelib"),)
    ),
    "mpirun-5": Launch(_MPI),
}


_STARTS_TWO_RANKS = """
import os, subprocess, sys
first = 2 * int(sys.argv[1])
places = [dict(RANK=str(first + local), LOCAL_RANK=str(local)) for local in range(2)]
ranks = [subprocess.Popen([sys.executable, *sys.argv[2:]], env=dict(os.environ, **place)) for place in places]
sys.exit(max(abs(rank.wait()) for rank in ranks))
"""

AGENT = Launch(
    {
        "sagemaker_agent_enabled": True,
        "sagemaker_agent_command": f"{{python}} -c {shlex.quote(_STARTS_TWO_RANKS)} {{host_rank}}",
        "sagemaker_processes_per_host": 2,
    }
)
"""Another project's launcher. It takes part in few tests: ``test_local_agent`` has more."""


DESCRIPTORS = 1024
"""The open files that a runtime and its ranks may have, as many systems limit them."""


class HostPart:
    """One host of the job: its program and its files."""

    def __init__(self, machine: Machine, base: Path) -> None:
        self.name = machine.name
        self.paths = Paths(base)
        self.log = base / "log.txt"
        self.machine = machine
        self.program: Program

    def start(self, launch: Launch, environment: Mapping[str, str]) -> None:
        env = {
            "PATH": os.defpath,
            "HOME": str(self.paths.base),
            "TMPDIR": "/var/tmp",
            "PYTHONPATH": os.pathsep.join([str(Path(cloudtrain.__file__).parents[1]), *launch.packages]),
            "SAGEMAKER_BASE_DIR": str(self.paths.base),
            "CLOUDTRAIN_STOP_GRACE": "20",
            **environment,
        }
        with self.log.open("wb") as output:
            command = ["prlimit", f"--nofile={DESCRIPTORS}", launch.python, "-m", "cloudtrain.runtime"]
            self.program = self.machine.start(command, cwd=self.paths.base, env=env, output=output)

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def failure(self) -> FailureReport:
        return FailureReport.from_json(self.paths.failure_report.read_text())


class HostsJob:
    """A script on several hosts. The fixture kills it at the end of the test.

    Args:
        script: the text of the entry point.
        launch: see `LAUNCHES`.
        hyperparameters: those of the script.
        arguments: those of the script.
        environment: further variables of the runtimes.
        of: those of one host, by its name.
    """

    def __init__(
        self,
        machines: Sequence[Machine],
        folder: Path,
        script: str,
        launch: Launch,
        *,
        hyperparameters: Mapping[str, Any] | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        of: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._of = of or {}
        self.environment = {"CLOUDTRAIN_SECRET": fresh_secret(), **(environment or {})}
        self.parts = [HostPart(machine, folder / machine.name) for machine in machines]
        values = {"sagemaker_program": "train.py", **launch.values, **(hyperparameters or {})}
        for part in self.parts:
            part.paths.make()
            (part.paths.code / "train.py").write_text(textwrap.dedent(script))
            documents = {
                "hyperparameters": {**encode_hyperparameters(values), **encode_arguments(arguments)},
                "resourceconfig": {
                    "current_host": part.name,
                    "hosts": [machine.name for machine in machines],
                    "network_interface_name": "eth0",
                },
            }
            for name, document in documents.items():
                (part.paths.input_config / f"{name}.json").write_text(json.dumps(document))
        self._launch = launch
        self.start()

    def start(self) -> None:
        """Start the runtime of every host. After `kill`, this restarts it in place, like a container."""
        self.started_at = time.monotonic()
        for part in self.parts:
            part.start(self._launch, {**self.environment, **self._of.get(part.name, {})})

    def kill(self) -> None:
        """Send SIGKILL to all processes of all hosts."""
        for part in self.parts:
            part.program.kill()

    def part(self, name: str) -> HostPart:
        """The part of the host with this name."""
        [part] = [part for part in self.parts if part.name == name]
        return part

    def output(self) -> str:
        """The output of all hosts so far."""
        return "".join(part.output() for part in self.parts)

    def wait_for(self, text: str, count: int, timeout: float = 120) -> None:
        """Wait until the ranks have printed ``text`` ``count`` times."""
        deadline = time.monotonic() + timeout
        while self.output().count(text) < count:
            in_time = time.monotonic() < deadline and all(part.program.running for part in self.parts)
            assert in_time, f"{text!r} was not printed {count} times:\n{self.output()}"
            time.sleep(0.02)

    def wait(self, timeout: float = 120) -> list[int]:
        """Wait for all hosts; returns their exit codes. Raises subprocess.TimeoutExpired."""
        deadline = time.monotonic() + timeout
        return [part.program.wait(max(0.1, deadline - time.monotonic())) for part in self.parts]

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started_at


class StartJob(Protocol):
    """The fixture ``start_job``; ``options`` are those of `HostsJob`."""

    def __call__(self, script: str, launch: Launch, hosts: int = 2, **options: Any) -> HostsJob: ...
