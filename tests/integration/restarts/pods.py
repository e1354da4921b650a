"""Pods of a job as processes: the runtime of each host, in its own folders. A test starts them again as the
controller of a Job does."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from cloudtrain.contract import Paths, Settings
from cloudtrain.contract.ending import Ending
from cloudtrain.runtime.ports import free_port

RESTART = 75
SECRET = "the secret of the job under test, on all its hosts"
PROCESSES = {"sagemaker_processes_enabled": "true", "sagemaker_processes_per_host": "1"}


def outer_address() -> str:
    """An address of this machine that is not on the loopback interface: connections to it are encrypted."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])
    return "127.0.0.1"


class Pod:
    """One process of a host."""

    def __init__(
        self,
        folder: Path,
        name: str,
        hosts: tuple[str, ...],
        script: str,
        settings: Settings,
        environ: Mapping[str, str],
        wrapper: tuple[str, ...] = (),
        hyperparameters: Mapping[str, str] = PROCESSES,
    ) -> None:
        self.name = name
        self.paths = Paths(folder / "ml")
        self.paths.make()
        self.message = folder / "termination-log"
        self.message.touch()
        (self.paths.code / "train.py").write_text(textwrap.dedent(script))
        config = {
            "resourceconfig.json": {"current_host": name, "hosts": hosts, "network_interface_name": "lo"},
            "hyperparameters.json": {"sagemaker_program": "train.py", **hyperparameters},
        }
        for file, content in config.items():
            (self.paths.input_config / file).write_text(json.dumps(content))
        (self.paths.input_config / "secret").write_text(SECRET)
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*wrapper, sys.executable, "-m", "cloudtrain.runtime"],
                env={
                    **os.environ,
                    **settings.to_environ(),
                    "CLOUDTRAIN_TERMINATION_MESSAGE": str(self.message),
                    "SAGEMAKER_BASE_DIR": str(self.paths.base),
                    **environ,
                },
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.log = folder / "log"

    def kill(self) -> None:
        """As the kernel ends a pod whose process 1 is killed."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def ending(self) -> Ending:
        return Ending.from_json(self.message.read_bytes())

    def exit_code(self, timeout: float = 240) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {timeout} s: {self.text}") from None


class Pods:
    """The pods of one job. The last one of each host is its current one."""

    def __init__(
        self,
        folder: Path,
        script: str,
        count: int = 2,
        address: str = "127.0.0.1",
        hyperparameters: Mapping[str, str] = PROCESSES,
        **settings: object,
    ) -> None:
        self.folder = folder
        self.script = script
        self.hosts = tuple(f"job-{index}" for index in range(count))
        self.hyperparameters = hyperparameters
        values: dict[str, object] = {
            "rendezvous": f"{address}:{free_port()}",
            "master_addr": "127.0.0.1",
            "restart_exit_code": RESTART,
            "stop_grace": 5.0,
            **settings,
        }
        self.settings = Settings(**values)  # type: ignore[arg-type]
        self.all: list[Pod] = []

    def start(self, index: int, wrapper: tuple[str, ...] = (), **environ: str) -> Pod:
        folder = self.folder / f"pod-{len(self.all)}"
        folder.mkdir(parents=True)
        name = self.hosts[index]
        pod = Pod(
            folder, name, self.hosts, self.script, self.settings, environ, wrapper, self.hyperparameters
        )
        self.all.append(pod)
        return pod

    def start_all(self) -> list[Pod]:
        return [self.start(index) for index in range(len(self.hosts))]

    def end(self) -> None:
        for pod in self.all:
            with suppress(ProcessLookupError):
                os.kill(pod.process.pid, signal.SIGCONT)
            pod.kill()


def wait_until(condition: Callable[[], object], what: str, timeout: float = 240) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        time.sleep(0.05)
