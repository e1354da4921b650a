"""The folder of a job, on the machine that supervises the job.

request.json     the request, without secrets
state.json       the job's record: status, attempt, times, failure
lock             held by the supervisor while it is alive
stop             the user asked for the stop
.cloudtrain-*    spare files for the final record, until the job has ended
supervisor.log   output of the supervisor, if it fails itself
job.log          the output of all ranks, merged
events.jsonl     phases, progress, metrics
summary.json     a summary of the events so far; any reader may replace it
description.json the description of a job that has ended; likewise
leader           the address at which the hosts find their leader
hosts/<name>/    the host's /opt/ml
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudtrain._system.files import lock
from cloudtrain.contract import Paths
from cloudtrain.platforms.supervised.record import JobRecord, damaged_record
from cloudtrain.storage import state_home
from cloudtrain.storage.reserve import Reserve

REQUEST = "request.json"
RECORD = "state.json"
LOG = "job.log"
SUPERVISOR_LOG = "supervisor.log"
EVENTS = "events.jsonl"
SUMMARY = "summary.json"
DESCRIPTION = "description.json"
STOP_MARK = "stop"
LOCK = "lock"

READ_SIZE = 1 << 20


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
        return self.path / LOG

    @property
    def supervisor_log(self) -> Path:
        """The output of the supervisor, which is empty unless the supervisor itself fails."""
        return self.path / SUPERVISOR_LOG

    @property
    def events(self) -> Path:
        return self.path / EVENTS

    @property
    def leader(self) -> Path:
        """The file in which hosts that share this folder find their leader."""
        return self.path / "leader"

    @property
    def stop_mark(self) -> Path:
        return self.path / STOP_MARK

    @property
    def reserve(self) -> Reserve:
        """The space kept for its final record."""
        return Reserve(self.path)

    def host(self, name: str) -> Paths:
        return Paths(self.path / "hosts" / name)

    def read_request(self) -> dict[str, Any]:
        request: dict[str, Any] = json.loads((self.path / REQUEST).read_text(encoding="utf-8"))
        return request

    def read_record(self) -> JobRecord:
        """The last record of the supervisor. If it cannot be read, the result is that of a failed job.

        Raises FileNotFoundError if the job does not exist.
        """
        path = self.path / RECORD
        try:
            return JobRecord.from_json(path.read_bytes())
        except ValueError:
            return damaged_record(str(path), path.stat().st_mtime)

    def read_events(self, start: int) -> bytes:
        """Some bytes of the events from ``start``; empty at their end."""
        try:
            with open(self.events, "rb") as file:
                file.seek(start)
                return file.read(READ_SIZE)
        except FileNotFoundError:
            return b""

    def write_record(self, record: JobRecord) -> None:
        """Write the record, also on a full disk. Raises OSError."""
        final = record.status.is_final
        # after a crash of the machine, only a final record is useful
        self.reserve.replace(
            self.path / RECORD,
            record.to_json(),
            shorter=lambda: record.shortened().to_json(),
            leave=0 if final else 1,
            fsync=final,
        )

    @property
    def is_half_made(self) -> bool:
        """Whether a submission that was killed has left this folder, without a record. Later versions leave none."""
        try:
            names = set(os.listdir(self.path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return names <= {REQUEST, LOG, SUPERVISOR_LOG, LOCK, STOP_MARK} and not self.is_locked()

    def is_locked(self) -> bool:
        """Whether another process holds the lock."""
        try:
            descriptor = self.lock()
        except FileNotFoundError:
            return False
        if descriptor is None:
            return True
        os.close(descriptor)
        return False

    def lock(self) -> int | None:
        """Take the lock, and return its descriptor; None if another process, the supervisor, holds it.

        A child that inherits the descriptor also holds the lock. The kernel releases it when the last holder ends.
        """
        descriptor = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        if lock(descriptor, wait=False):
            return descriptor
        os.close(descriptor)
        return None


def jobs_home(platform: str) -> Path:
    """The folder of all jobs of this user on ``platform``."""
    return state_home() / "jobs" / platform
