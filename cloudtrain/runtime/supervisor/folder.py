"""The folder of a job, on the machine that supervises the job.

request.json     the request, without secrets
state.json       the job's record: status, attempt, times, failure
lock             held by the supervisor while it is alive, and recreated if it is removed; its modification time is
                 when the supervisor last showed that it is alive
stop             exists if the user has requested the stop
stacks           exists if the user has requested the stacks of all ranks; the supervisor removes it
.cloudtrain-*    spare files for the final record, until the job has ended
supervisor.log   the output of the supervisor, if the supervisor itself fails
job.log          the output of all ranks, merged
events.jsonl     phases, progress, metrics: the supervisor's own, and copies of those of the hosts
summary.json     a summary of the events so far; the supervisor and any reader may replace it
description.json the description of a job that has ended; the supervisor and any reader may replace it
notifications.*  messages about the job, which of them have been sent, and the lock of the sending process
leader           the address at which the hosts find their leader
hosts/<name>/    the host's /opt/ml
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Any, BinaryIO

from cloudtrain._dataclass import dataclass
from cloudtrain._system.files import (
    NOT_A_FILE,
    READ_REGULAR,
    lock,
    open_regular,
    open_to_append,
    read_regular,
)
from cloudtrain._system.retries import again
from cloudtrain.contract import Paths
from cloudtrain.contract.request_body import parse_body
from cloudtrain.contract.trackers import new_run_id
from cloudtrain.runtime.supervisor.record import LARGEST, RECORD, JobRecord, damaged_request, read_record
from cloudtrain.storage import state_home
from cloudtrain.storage.atomic import is_temporary
from cloudtrain.storage.disk_reserve import Reserve

REQUEST = "request.json"
LOG = "job.log"
SUPERVISOR_LOG = "supervisor.log"
EVENTS = "events.jsonl"
SUMMARY = "summary.json"
DESCRIPTION = "description.json"
STOP_MARK = "stop"
STACKS_REQUEST = "stacks"
FOR_STACKS, FOR_NATIVE_STACKS = b"python", b"native"
"""The possible contents of `STACKS_REQUEST`."""
LOCK = "lock"
CLAIM = "claim.json"
"""See `cloudtrain.runtime.supervisor.claim`."""

READ_SIZE = 1 << 20


_NO_LOCK = (errno.ENOENT, errno.ENOTDIR, *NOT_A_FILE)
"""The job was removed, or the lock's path is not a regular file."""


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
        """The disk space reserved for the final record."""
        return Reserve(self.path)

    def host(self, name: str) -> Paths:
        return Paths(self.path / "hosts" / name)

    def open_log(self) -> BinaryIO:
        """Open the job's log to append to it. Raises OSError if it is not a regular file."""
        return open(open_to_append(self.log), "ab")

    def append_to_log(self, text: str) -> None:
        """Append whole lines to the job's log. Raises OSError."""
        with self.open_log() as log:
            log.write(text.encode("utf-8", "backslashreplace"))

    def read_request(self) -> dict[str, Any]:
        """The body of the request. Raises PlatformError if it is damaged or missing."""
        try:
            data = again(lambda: read_regular(self.path / REQUEST, LARGEST))
            return parse_body(data, complete=True)
        except (OSError, ValueError) as error:
            raise damaged_request(str(self.path), error) from None

    def read_record(self) -> JobRecord:
        """The last record of the supervisor. If it cannot be read, the result is the record of a failed job.

        Raises FileNotFoundError if the job does not exist.
        """
        return read_record(lambda: read_regular(self.path / RECORD, LARGEST), str(self.path))

    @property
    def run_id(self) -> str:
        """The identity of the job for trackers, the same in all attempts. A later job with this name has another."""
        return new_run_id(self.name, self.read_record().submitted_at)

    def read_events(self, start: int) -> bytes:
        """Some bytes of the events from ``start``; empty at their end."""

        def read() -> bytes:
            with open(open_regular(self.events, READ_REGULAR), "rb") as file:
                file.seek(start)
                return file.read(READ_SIZE)

        try:
            return again(read)
        except FileNotFoundError:
            return b""

    def write_record(self, record: JobRecord) -> None:
        """Write the record, even on a full disk. Raises OSError."""
        final = record.status.is_final
        # after a crash of the machine, only a final record is useful
        again(
            lambda: self.reserve.replace(
                self.path / RECORD,
                record.to_json(),
                shorter=lambda: record.shortened().to_json(),
                leave=0 if final else 1,
                fsync=final,
            )
        )

    def take_stack_request(self) -> bytes:
        """Remove a new request for stacks, and return its content; empty if there is none. Raises OSError."""
        path = self.path / STACKS_REQUEST
        try:
            request = read_regular(path, 100)
        except FileNotFoundError:
            return b""
        path.unlink(missing_ok=True)
        return request

    @property
    def is_half_made(self) -> bool:
        """Whether a killed submission has left this folder without a record. Newer versions leave no such folders."""
        try:
            names = set(os.listdir(self.path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return names <= {REQUEST, LOG, SUPERVISOR_LOG, LOCK, STOP_MARK} and not self.is_locked()

    def is_alive(self) -> bool:
        """Whether the supervisor runs. It holds the lock; if the lock was removed, the record names its process.

        Raises OSError or PlatformError if this cannot be determined.
        """
        if self.is_locked():
            return True
        try:
            return self.read_record().names_live_process
        except FileNotFoundError:
            return False

    def is_locked(self) -> bool:
        """Whether another process holds the lock. Raises OSError, but not if there is no lock, or cannot be one."""
        try:
            descriptor = again(lambda: self.lock(create=False))
        except OSError as error:
            if error.errno in _NO_LOCK:
                return False
            raise
        if descriptor is None:
            return True
        os.close(descriptor)
        return False

    def show_life(self, held: int | None = None) -> None:
        """Let `last_life` return the current time. Needs no space on the disk.

        Args:
            held: the descriptor of the lock that this process holds. If the file was removed, it is recreated and
                locked, with the same descriptor.
        """
        with contextlib.suppress(OSError):  # the folder was removed
            if held is not None and not self._is_lock(held):
                lock = self.lock()
                if lock is None:
                    return  # a reader is just testing it: try at the next call
                os.dup2(lock, held, inheritable=False)
                os.close(lock)
            os.utime(self.path / LOCK)

    def _is_lock(self, held: int) -> bool:
        try:
            return os.path.samestat(os.fstat(held), (self.path / LOCK).lstat())
        except FileNotFoundError:
            return False

    def last_life(self) -> float | None:
        """When the job was last seen alive, in seconds since the epoch; None if no file shows it."""
        times = []
        for name in (LOCK, CLAIM, EVENTS, LOG):
            with contextlib.suppress(OSError):
                times.append((self.path / name).lstat().st_mtime)
        return max(times, default=None)

    def lock(self, *, create: bool = True) -> int | None:
        """Take the lock, and return its descriptor; None if another process holds it.

        A child that inherits the descriptor also holds the lock. The kernel releases it when the last holder ends.
        """
        flags = os.O_RDWR | READ_REGULAR | (os.O_CREAT if create else 0)
        descriptor = open_regular(self.path / LOCK, flags, 0o600)
        try:
            if lock(descriptor, wait=False):
                return descriptor
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None


def jobs_home(platform: str) -> Path:
    """The folder of all jobs of this user on ``platform``."""
    return state_home() / "jobs" / platform


def folders_with_record(jobs: Path) -> list[Path]:
    """The folders of all jobs in ``jobs``, sorted by name. Anything counts as a record, even a broken link."""
    try:
        names = os.listdir(jobs)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [
        jobs / name
        for name in sorted(names)
        if not is_temporary(name) and os.path.lexists(f"{jobs}/{name}/{RECORD}")
    ]
