"""A supervised job whose runtimes are any programs: data in, record out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from cloudtrain.contract import FailureReport, JobStatus
from cloudtrain.observe.events import read_events
from cloudtrain.runtime.supervisor.continuation import Continuation
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.hosts import RunningHost
from cloudtrain.runtime.supervisor.record import JobRecord
from cloudtrain.runtime.supervisor.supervise import supervise

REQUEST = {
    "host_count": 2,
    "instance_type": "local",
    "channels": {},
    "settings": {"host_timeout": 1.0, "stop_grace": 1.0},
    "environment": {},
    "hyperparameters": {},
    "max_run": 3600,
    "max_retry_attempts": 0,
    "max_preemptions": 0,
}


NEW = JobRecord(JobStatus.PENDING, submitted_at=1.0)


class Program:
    """A host whose runtime is a command of the shell."""

    def __init__(self, command: str, folder: Path) -> None:
        self._process = subprocess.Popen(["sh", "-c", command], cwd=folder)

    def poll(self) -> int | None:
        return self._process.poll()

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def abandon(self) -> None:
        self._process.kill()

    def lost(self, name: str) -> FailureReport:
        return FailureReport.host_lost(name, "it is gone", time.time())


class Programs:
    """The hosts.

    Args:
        folder: the working folder of the programs.
        commands: the program of each host, the leader first.
        reports: of the hosts that write one.
        at_finish: called when all have ended.
    """

    interface = "lo"
    end_seconds = 1.0
    look_seconds = 0.1
    resources = ""
    upload = False
    may_lose_some = False
    storage_environment = os.environ

    def __init__(
        self,
        folder: Path,
        commands: Mapping[str, str],
        reports: Mapping[str, FailureReport],
        at_finish: Callable[[], None] = lambda: None,
    ) -> None:
        self.names = self.everyone = tuple(commands)
        self.spares: Sequence[str] = ()
        self.free_spares: Sequence[str] = ()
        self.waiting: Mapping[str, RunningHost] = {}
        self._folder = folder
        self._commands = commands
        self._reports = reports
        self._at_finish = at_finish

    def assign(self, left_out: Sequence[str], dropped: Sequence[str]) -> None:
        pass

    def rejoin(self, name: str) -> bool:
        return False

    def prepare(self) -> None:
        pass

    def start(self, attempt: int, log: int) -> Mapping[str, RunningHost]:
        return {name: Program(command, self._folder) for name, command in self._commands.items()}

    def report(self, name: str) -> FailureReport | None:
        return self._reports.get(name)

    def finish(self, *, failed: bool) -> FailureReport | None:
        self._at_finish()
        return None


def run_programs(
    path: Path,
    commands: Mapping[str, str],
    reports: Mapping[str, FailureReport],
    at_finish: Callable[[], None] = lambda: None,
    record: JobRecord = NEW,
    continuation: Continuation | None = None,
    **request: object,
) -> tuple[JobRecord, list[str]]:
    """Supervise a job in the folder ``path``, from ``record`` on. Returns its record and the warnings of its events."""
    folder = JobFolder(path)
    (path / "request.json").write_text(json.dumps({**REQUEST, **request}))
    folder.write_record(record)
    with _handlers():
        supervise(folder, Programs(path, commands, reports, at_finish), continuation)
    warnings = [event["message"] for event in read_events(folder.events) if event["event"] == "warning"]
    return folder.read_record(), warnings


@contextmanager
def _handlers() -> Iterator[None]:
    """Restores the handlers of signals, which the supervisor sets."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
