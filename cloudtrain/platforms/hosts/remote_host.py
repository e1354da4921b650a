"""One host of a job at the other end of a connection."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from cloudtrain._system.signals import SIGKILL, linux_number
from cloudtrain.contract import FailureClass, FailureReport, Paths
from cloudtrain.platforms.hosts.connection import Connection, HostDisconnected, Problem
from cloudtrain.platforms.hosts.transfer import Arrivals, send_files
from cloudtrain.runtime.diagnose.first_cause import lost_report
from cloudtrain.runtime.job_secret import SECRET_FILE
from cloudtrain.runtime.output import TAIL_LINES, write_all
from cloudtrain.runtime.start.messages import (
    Data,
    Events,
    Exit,
    File,
    Folder,
    Leader,
    NodeJob,
    Refused,
    Release,
    Report,
    Signal,
    Warn,
)

SILENT = "Check that the machine is on, and its network. Submit the job again: it resumes from its last checkpoint."
LOST_CODE = 255
FINISH_SECONDS = 10.0
"""How long a host may take to remove its files after the job."""
FULL = os.strerror(errno.ENOSPC)


class RefusedHost:
    """A `RunningHost` that could not be started."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def poll(self) -> int:
        return 1

    def send_signal(self, number: int) -> None:
        """It has ended."""

    def abandon(self) -> None:
        """It has ended."""

    def lost(self, name: str) -> FailureReport:
        return FailureReport(
            FailureClass.HOST_LOST,
            self._problem.what,
            self._problem.hint,
            host=name,
            phase="start",
            time=time.time(),
        )


class RemoteHost:
    """A `RunningHost` at the other end of a connection, which a thread serves.

    Args:
        paths: the host's folder on this machine.
        arrivals: receives the files that the host sends back.
        on_leader: called with the address of the leader, if this host leads.
        on_poll: called whenever the supervisor polls the host.
        warn: adds a warning to the job.
    """

    def __init__(
        self,
        connection: Connection,
        paths: Paths,
        arrivals: Arrivals,
        *,
        on_leader: Callable[[str], object],
        on_poll: Callable[[], object],
        warn: Callable[[str], object],
    ) -> None:
        self._connection = connection
        self._paths = paths
        self._arrivals = arrivals
        self._on_leader = on_leader
        self._on_poll = on_poll
        self._warn = warn
        self._code: int | None = None
        self._why = ""
        self._is_cancelled = False
        self._leader = ""
        self._started = threading.Event()
        self._lock = threading.Lock()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    def run(self, send: Mapping[str, Path], folder: Folder, job: NodeJob, log: int) -> None:
        """Send the files and start the runtime, in a thread. ``log`` is closed when the thread ends."""
        self._thread = threading.Thread(target=self._run, args=(send, folder, job, log), daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    # -- called by the supervisor's thread

    def poll(self) -> int | None:
        self._on_poll()
        return self._code

    def send_signal(self, number: int) -> None:
        if self._code is not None:
            return
        if number == SIGKILL:
            self._is_cancelled = True
            self._connection.close()
            return
        with self._lock:
            if self._started.is_set():
                self._connection.send(Signal(linux_number(number)))
            elif number == signal.SIGTERM:
                self._is_cancelled = True

    def abandon(self) -> None:
        self.send_signal(SIGKILL)

    def send_leader(self, address: str) -> None:
        """Send the address at which the leader listens, as soon as the host has its job."""
        with self._lock:
            self._leader = address
            if self._started.is_set():
                self._connection.send(Leader(address))

    def lost(self, name: str) -> FailureReport:
        if self._code not in (LOST_CODE, None) and not self._why:
            report = lost_report(name, self._code)
        elif FULL in self._why:
            report = FailureReport(
                FailureClass.DISK_FULL,
                f"{name}: {self._why}",
                f"Free space on {name}.",
                host=name,
                time=time.time(),
            )
        else:
            report = replace(FailureReport.host_lost(name, self._why, time.time()), hint=SILENT)
        return replace(report, log_tail=tuple(self._tail))

    # -- in its own thread

    def _run(self, send: Mapping[str, Path], folder: Folder, job: NodeJob, log: int) -> None:
        code = LOST_CODE
        try:
            send_files(self._connection, send, folder, lambda: self._is_cancelled or self._connection.is_over)
            (self._paths.input_config / SECRET_FILE).unlink(missing_ok=True)  # it is on the host now
            with self._lock:
                if not self._is_cancelled:
                    self._connection.send(job)
                    self._started.set()
                    if self._leader:
                        self._connection.send(Leader(self._leader))
            code = -signal.SIGTERM if self._is_cancelled else self._serve(log)
        except HostDisconnected as error:
            problem = self._connection.problem()
            self._why = f"{error}; {problem.what}" if self._connection.complained else str(error)
        except OSError as error:
            self._why = f"{error.strerror or error}: {error.filename or self._paths.base}"
        except ValueError as error:
            self._why = f"it sent an invalid message: {error!r}"
        finally:
            self._arrivals.close()
            os.close(log)
            self._connection.close()
            if code == LOST_CODE and self._is_cancelled:
                code = -SIGKILL if self._started.is_set() else -signal.SIGTERM
            self._code = code

    def _serve(self, log: int) -> int:
        """Handle the host's messages until its runtime has ended. Returns the runtime's exit code."""
        while True:
            match self._connection.receive():
                case bytes(lines):
                    self._write(lines, log)
                case Events(content=content):
                    with open(self._paths.events, "ab") as events:
                        events.write(content)
                case Leader(address=address):
                    self._on_leader(address)
                case Report(content=content):
                    self._paths.failure_report.write_bytes(content)
                case File() as file:
                    self._arrivals.begin(file)
                case Data(content=content):
                    self._arrivals.add(content)
                case Warn(text=text):
                    self._warn(f"{self._connection.host.name}: {text}")
                case Refused(message=why):
                    self._why = why
                    return LOST_CODE
                case Exit(code=code):
                    self._connection.send(Release())
                    self._connection.close(FINISH_SECONDS)
                    return code

    def _write(self, lines: bytes, log: int) -> None:
        self._tail.extend(lines.decode("utf-8", "backslashreplace").splitlines())
        with contextlib.suppress(OSError):  # a full disk must not end the host
            write_all(log, lines)
