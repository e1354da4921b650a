"""One host of a job at the other end of a connection."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloudtrain._system.signals import SIGKILL
from cloudtrain.contract import FailureClass, FailureReport, Paths
from cloudtrain.platforms.hosts.connection import Connection, HostDisconnected, Problem
from cloudtrain.platforms.hosts.transfer import Arrivals, send_files
from cloudtrain.runtime.diagnose.first_cause import lost_report
from cloudtrain.runtime.job_secret import SECRET_FILE
from cloudtrain.runtime.output import Stream, write_all
from cloudtrain.runtime.start.remote_start import (
    DATA,
    END,
    ERROR,
    EVENTS,
    EXIT,
    FILE,
    LEADER,
    OUTPUT,
    REPORT,
    SIGNAL,
    START,
    WARNING,
)

SILENT = "Check that the machine is on, and its network. Submit the job again: it resumes from its last checkpoint."
LOST_CODE = 255
FULL = os.strerror(errno.ENOSPC)


class RefusedHost:
    """A `RunningHost` that could not be started."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def poll(self) -> int:
        return 1

    def send_signal(self, number: int) -> None:
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
    """A `RunningHost`, which a thread serves.

    Args:
        paths: the host's folder on this machine.
        arrivals: takes the files that the host sends back.
        timeout: the seconds of silence after which the host is lost.
        on_leader: called with the address of the leader; None unless this host leads.
        on_poll: called whenever the supervisor looks at the host.
        warn: adds a warning to the job.
    """

    def __init__(
        self,
        connection: Connection,
        paths: Paths,
        arrivals: Arrivals,
        *,
        timeout: float,
        on_leader: Callable[[bytes], object] | None,
        on_poll: Callable[[], object],
        warn: Callable[[str], object],
    ) -> None:
        self._connection = connection
        self._paths = paths
        self._arrivals = arrivals
        self._timeout = timeout
        self._on_leader = on_leader
        self._on_poll = on_poll
        self._warn = warn
        self._code: int | None = None
        self._why = ""
        self._is_cancelled = False
        self._started = threading.Event()
        self._waiting: list[str] = []
        self._lock = threading.Lock()
        self._output = Stream(rank=None, descriptor=-1)

    def run(
        self, send: Mapping[str, Path], place: Mapping[str, str], start: Mapping[str, Any], log: int
    ) -> None:
        """Start the runtime, in a thread. ``log`` is closed at its end."""
        serve = threading.Thread(target=self._run, args=(send, place, start, log), daemon=True)
        serve.start()
        self._thread = serve

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
                self._connection.send(SIGNAL, signal.Signals(number).name.encode())
            elif number == signal.SIGTERM:
                self._is_cancelled = True

    def send_leader(self, address: bytes) -> None:
        """Send the address at which its leader listens."""
        self._connection.send(LEADER, address)

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
        return replace(report, log_tail=tuple(self._output.tail))

    # -- in its own thread

    def _run(
        self, send: Mapping[str, Path], place: Mapping[str, str], start: Mapping[str, Any], log: int
    ) -> None:
        code = LOST_CODE
        try:
            send_files(self._connection, send, place, lambda: self._is_cancelled or self._connection.is_over)
            (self._paths.input_config / SECRET_FILE).unlink(missing_ok=True)  # it is on the host now
            with self._lock:
                if not self._is_cancelled:
                    self._connection.send(START, json.dumps(start).encode())
                    self._started.set()
            code = -signal.SIGTERM if self._is_cancelled else self._serve(log)
        except HostDisconnected as error:
            problem = self._connection.problem()
            self._why = f"{error}; {problem.what}" if self._connection.complained else str(error)
        except OSError as error:
            self._why = f"{error.strerror or error}: {error.filename or self._paths.base}"
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            self._why = f"it sent an invalid message: {error!r}"
        finally:
            self._arrivals.close()
            self._write(self._output.rest(), log)
            os.close(log)
            self._connection.close()
            if code == LOST_CODE and self._is_cancelled:
                code = -SIGKILL if self._started.is_set() else -signal.SIGTERM
            self._code = code

    def _serve(self, log: int) -> int:
        """Take what the host sends until its runtime has ended. Returns the runtime's exit code."""
        while True:
            kind, content = self._connection.receive(self._timeout)
            if kind == OUTPUT:
                self._write(self._output.take(content), log)
            elif kind == EVENTS:
                with open(self._paths.events, "ab") as events:
                    events.write(content)
            elif kind == LEADER and self._on_leader:
                self._on_leader(content)
            elif kind == REPORT:
                self._paths.failure_report.write_bytes(content)
            elif kind == FILE:
                self._arrivals.begin(json.loads(content))
            elif kind == DATA:
                self._arrivals.add(content)
            elif kind == WARNING:
                self._warn(f"{self._connection.host.name}: {content.decode('utf-8', 'replace')}")
            elif kind == ERROR:
                self._why = content.decode("utf-8", "replace")
                return LOST_CODE
            elif kind == EXIT:
                self._connection.send(END)
                self._connection.finish()
                return int(content)

    def _write(self, lines: list[bytes], log: int) -> None:
        """Whole lines, because other hosts write to the same log."""
        if not lines:
            return
        self._output.tail.extend(line.decode("utf-8", "backslashreplace") for line in lines)
        with contextlib.suppress(OSError):  # a full disk must not end the host
            write_all(log, b"".join(line + b"\n" for line in lines))
