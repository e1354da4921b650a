"""A leader that fails before it can listen: the supervisor ends the hosts that wait for it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.platforms.supervised.folder import JobFolder
from cloudtrain.platforms.supervised.hosts import RunningHost
from cloudtrain.platforms.supervised.record import JobRecord
from cloudtrain.platforms.supervised.supervisor import supervise

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


class Program:
    """A host whose runtime is any program."""

    def __init__(self, command: str) -> None:
        self._process = subprocess.Popen(["sh", "-c", command])

    def poll(self) -> int | None:
        return self._process.poll()

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def lost(self, name: str) -> FailureReport:
        return FailureReport.host_lost(name, "it is gone", time.time())


class Programs:
    """The leader reports a full disk and ends; the other host waits."""

    names = ("algo-1", "algo-2")
    interface = "lo"
    end_seconds = 1.0
    upload = False

    def prepare(self) -> None:
        pass

    def start(self, attempt: int, log: int) -> Mapping[str, RunningHost]:
        return {"algo-1": Program("exit 1"), "algo-2": Program("exec sleep 600")}

    def report(self, name: str) -> FailureReport | None:
        if name == "algo-1":
            return FailureReport(FailureClass.DISK_FULL, "No space left on device", host=name, time=1.0)
        return None

    def finish(self, *, failed: bool) -> FailureReport | None:
        return None


@pytest.fixture
def handlers() -> Iterator[None]:
    """Restores the handlers of signals, which the supervisor sets."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_hosts_do_not_wait_for_a_leader_that_failed(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    (tmp_path / "request.json").write_text(json.dumps(REQUEST))
    folder.write_record(JobRecord(JobStatus.PENDING, submitted_at=1.0))
    start = time.monotonic()
    supervise(folder, Programs())
    assert time.monotonic() - start < 60
    record = folder.read_record()
    assert record.status == JobStatus.FAILED
    assert record.failure
    assert (record.failure.failure_class, record.failure.host) == (FailureClass.DISK_FULL, "algo-1")
