"""The process that sends the notifications of a job. It runs next to the supervisor, and may outlive it.

It holds the lock of the job's outbox throughout, sends what the supervisor posts there, and posts the end of the job
itself: from the final record, or because the supervisor was killed. On the user's own machine, it runs until each
notification has arrived, or its rule gives up. In an allocation it ends with the batch step; ``cloudtrain notify``
sends what has not arrived by then.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO

from cloudtrain._system.files import read_regular
from cloudtrain._system.retries import exists
from cloudtrain._system.signals import SIGHUP
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.contract.request_body import script_variables
from cloudtrain.observe import steady
from cloudtrain.runtime.descendants import no_orphans_adopted
from cloudtrain.runtime.notifications.delivery import Delivery
from cloudtrain.runtime.notifications.outbox import SILENT_SECONDS, Outbox, Signs
from cloudtrain.runtime.notifications.rules import rules_of
from cloudtrain.runtime.run_folder import LIBRARY
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.notifications import end_notification
from cloudtrain.runtime.supervisor.record import LARGEST, STOPPED_BY_USER

LOOK_SECONDS = 0.5
ALIVE_SECONDS = 2.0
"""Seconds between two checks whether the supervisor is alive."""
RESTART_SECONDS = 60.0
"""The supervisor restarts a courier that has ended at most once in this time."""
LOCK_SECONDS = 10.0
"""How long a courier tries to get the lock after its supervisor has ended."""
REQUEST_SECONDS = 600.0
"""How long a courier tries to read the request."""
MACHINE, STEP = "machine", "step"
"""Where the supervisor runs: on the user's own machine, or in an allocation."""

_RUN = (
    "import sys; del sys.path[0]; sys.path.append(sys.argv[1]);"
    " from cloudtrain.runtime.supervisor.courier import main; main()"
)
_ORPHAN = 'exec 3<&0; "$@" <&3 3<&- &'
"""A shell command that starts a program as an orphan, because a supervisor ends its descendants after each attempt."""


class Courier:
    """The supervisor's handle of the courier. The courier notices when the supervisor closes it, or is killed.

    Errors never affect the job: it runs without notifications if the courier does not start.
    """

    def __init__(self, folder: JobFolder, environ: Mapping[str, str], place: str) -> None:
        self._folder = folder
        self._outbox = Outbox(folder.path)
        self._environ = {**environ, steady.VARIABLE: steady.clock()}
        command = [sys.executable, "-c", _RUN, LIBRARY, str(folder.path), place]
        self._is_orphan = place == MACHINE
        self._command = ["/bin/sh", "-c", _ORPHAN, "sh", *command] if self._is_orphan else command
        self._process: subprocess.Popen[bytes] | None = None
        self._said: set[str] = set()
        self._start()

    def _start(self) -> None:
        self._started_at = self._watched_at = time.monotonic()
        self._signs: Signs | None = None
        try:
            with no_orphans_adopted():
                self._process = subprocess.Popen(
                    self._command,
                    env=self._environ,
                    cwd="/",
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                if self._is_orphan:
                    self._process.wait()
        except OSError as error:
            self._say(f"notifications of this job are not sent: {error}")

    def keep(self) -> None:
        """Restart the courier if it has ended, at most once in `RESTART_SECONDS`, or replace it if it is paused."""
        now = time.monotonic()
        if now >= self._started_at + RESTART_SECONDS:
            self._start_again()
        if now >= self._watched_at + SILENT_SECONDS:
            if now >= self._watched_at + 2 * SILENT_SECONDS:
                self._signs = None  # this process was paused, and perhaps the courier with it
            self._watched_at = now
            with suppress(OSError):  # it has not begun, or the disk fails
                self._replace_paused()

    def _replace_paused(self) -> None:
        """Start another courier if this one has shown no sign of life since the last call."""
        before, self._signs = self._signs, self._outbox.signs()
        if before is None or before != self._signs or not self._outbox.take_over(before):
            return
        self._say("the process that sends the notifications of this job is paused: starting another one")
        if self._process and self._process.stdin:
            self._process.stdin.close()
            self._process.kill()  # works in an allocation; elsewhere it is not a child, and ends when it is resumed
            self._process.wait()
            self._process = None
        self._start()

    def close(self, seconds: float) -> None:
        """Let the courier finish. In an allocation, end it after ``seconds``."""
        self._start_again()
        if not self._process or not self._process.stdin:
            return
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self._process.kill()
        self._process.wait()

    def _start_again(self) -> None:
        """Start the courier if none runs. The new one gets the lock of the outbox once the old one has ended."""
        if self._process and self._process.stdin:
            if not has_no_reader(self._process.stdin):
                return
            self._process.stdin.close()
            self._process.wait()
            self._process = None
            self._say("the process that sends the notifications of this job was killed: starting it again")
        self._start()

    def _say(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            with suppress(OSError):
                self._folder.append_to_log(f"[cloudtrain] {message}\n")


def has_no_reader(pipe: IO[bytes]) -> bool:
    """Whether no process can read what is written to a pipe."""
    poll = select.poll()
    poll.register(pipe, 0)
    return bool(poll.poll(0))


def main() -> None:
    """Send the notifications of the job in a folder. The arguments are those of `Courier`."""
    for number in (signal.SIGINT, SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder, place = JobFolder(Path(sys.argv[2])), sys.argv[3]
    closed = threading.Event()
    threading.Thread(target=_wait_for_end, args=(closed,), daemon=True).start()
    outbox, until = Outbox(folder.path), float("inf")
    while time.monotonic() < until:
        with suppress(OSError), outbox.held() as is_held:
            if is_held and carry(folder, outbox, dict(os.environ), closed, place):
                return
        if closed.is_set():
            until = min(until, time.monotonic() + LOCK_SECONDS)
        time.sleep(LOOK_SECONDS)


def carry(
    folder: JobFolder, outbox: Outbox, environ: Mapping[str, str], closed: threading.Event, place: str
) -> bool:
    """Send the notifications of a job until its supervisor has ended and none is left, or its folder is removed.

    Returns false earlier if another process has taken the outbox over.

    Args:
        closed: set when the supervisor has closed its end, or was killed.
    """
    delivery: Delivery | None = None
    ended = posted = False
    look_at, give_up_at = time.monotonic() + ALIVE_SECONDS, time.monotonic() + REQUEST_SECONDS
    while delivery or time.monotonic() < give_up_at:
        with suppress(Exception):  # a file system that fails for a moment, or a limit of threads
            if not exists(folder.path):
                return True
            if outbox.is_taken_over:
                return False
            with suppress(OSError):  # a full disk: notifications that are due are sent even so
                outbox.beat()
            delivery = delivery or _delivery(folder, outbox, environ)
            if place == MACHINE and not ended and time.monotonic() > look_at:
                look_at = time.monotonic() + ALIVE_SECONDS
                ended = not folder.is_alive()
            ended = ended or closed.is_set()
            if ended and not posted:
                posted = post_end(folder, place)
            if not delivery.step() and posted and not outbox.is_taken_over:
                return True
        if ended:
            time.sleep(LOOK_SECONDS / 5)
        else:
            closed.wait(LOOK_SECONDS)
    return True


def _delivery(folder: JobFolder, outbox: Outbox, environ: Mapping[str, str]) -> Delivery:
    """Raises PlatformError if the request cannot be read."""
    body = folder.read_request()
    return Delivery(outbox, rules_of(body), environ, hidden=script_variables(body))


def post_end(folder: JobFolder, place: str) -> bool:
    """Post the notification of a job's end after its supervisor has ended, unless the job continues elsewhere.

    Returns false if that cannot be decided yet. Raises OSError or PlatformError.
    """
    record = folder.read_record()
    if not record.status.is_final and place == MACHINE:
        if folder.is_alive():
            return False
        record = folder.read_record()
    if not record.status.is_final:
        if place == STEP:
            return True
        record = replace(record, ended_at=folder.last_life())
        if folder.stop_mark.exists():
            record = replace(record, status=JobStatus.STOPPED, reason=STOPPED_BY_USER)
        else:
            record = replace(record, status=JobStatus.FAILED, failure=_lost(folder))
    outbox = Outbox(folder.path)
    notification = end_notification(folder.name, folder.path.parent.name, record)
    if notification.key not in outbox.read().notifications:
        outbox.post(notification)
    return True


def _lost(folder: JobFolder) -> FailureReport:
    """The failure of a job whose supervisor was killed, with the last line that it printed, if any."""
    last = ""
    with suppress(OSError):
        lines = read_regular(folder.supervisor_log, LARGEST).decode("utf-8", "replace").splitlines()
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return FailureReport(
        FailureClass.KILLED,
        f"the supervisor of the job is gone: {last or 'it was killed, or the machine was restarted'}",
        "Submit the job again: it resumes from its last checkpoint.",
        exit_code=137,
        time=steady.now(),
    )


def _wait_for_end(closed: threading.Event) -> None:
    with suppress(OSError):
        while os.read(0, 1 << 12):
            pass
    closed.set()
