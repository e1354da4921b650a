"""All state of a job that this machine supervises, in one folder.

request.json     what was submitted (no secrets)
state.json       what the supervisor knows: status, attempt, times, failure
lock             held by the supervisor for as long as it lives
stop             somebody asked for the stop
job.log          the output of all ranks, merged
events.jsonl     phases, progress, metrics
leader           where the hosts of the job find each other
hosts/<name>/    what is /opt/ml in a container, one for each host
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cloudtrain.contract import FailureClass, FailureReport, JobStatus, Paths
from cloudtrain.storage import state_home
from cloudtrain.storage.atomic import replace_file


@dataclass(frozen=True)
class State:
    """What the supervisor last said of its job."""

    status: JobStatus
    submitted_at: float
    attempt: int = 0
    pid: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    failure: FailureReport | None = None
    reason: str = ""


@dataclass(frozen=True)
class JobFolder:
    """The folder of one job."""

    path: Path

    @classmethod
    def of(cls, platform: str, job_name: str) -> JobFolder:
        return cls(jobs_home(platform) / job_name)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def log(self) -> Path:
        return self.path / "job.log"

    @property
    def supervisor_log(self) -> Path:
        """What the supervisor says when it fails itself: nothing else is there."""
        return self.path / "supervisor.log"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def leader(self) -> Path:
        """Where hosts that share this folder find their leader."""
        return self.path / "leader"

    @property
    def stop_mark(self) -> Path:
        return self.path / "stop"

    def host(self, name: str) -> Paths:
        return Paths(self.path / "hosts" / name)

    def read_request(self) -> dict[str, Any]:
        request: dict[str, Any] = json.loads((self.path / "request.json").read_text(encoding="utf-8"))
        return request

    def write_request(self, request: str) -> None:
        (self.path / "request.json").write_text(request, encoding="utf-8")

    def read_state(self) -> State:
        """The last word of the supervisor; a job whose words cannot be read has failed.

        Raises FileNotFoundError where there is no such job.
        """
        path = self.path / "state.json"
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            record["status"] = JobStatus(record["status"])
            record["failure"] = FailureReport.from_dict(record["failure"]) if record["failure"] else None
            return State(**record)
        except (ValueError, KeyError, TypeError):
            failure = FailureReport(FailureClass.PLATFORM, f"{path} is damaged", "Remove the job's folder.")
            return State(JobStatus.FAILED, path.stat().st_mtime, exit_code=1, failure=failure)

    def write_state(self, state: State) -> None:
        record = asdict(state)
        record["status"] = str(state.status)
        record["failure"] = state.failure.to_dict() if state.failure else None
        data = json.dumps(record, ensure_ascii=False).encode("utf-8", "backslashreplace")
        # Only a final state is of use after a crash of the machine.
        replace_file(self.path / "state.json", data, fsync=state.status.is_final)

    def lock(self) -> int | None:
        """The descriptor of the lock, taken; None where another process holds it: the supervisor lives.

        The lock belongs to the descriptor: a child that inherits it holds it on. It falls with the last one,
        however that ends.
        """
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor


def jobs_home(platform: str) -> Path:
    """The folder of all jobs of this user on ``platform``."""
    return state_home() / "jobs" / platform
