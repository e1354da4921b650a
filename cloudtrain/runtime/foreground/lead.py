"""Watches the ranks of a run in the foreground, on one or several hosts, and determines the exit status of the run."""

from __future__ import annotations

import contextlib
import queue
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from cloudtrain._system.signals import linux_number, own_number
from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.contract.text import escape_text
from cloudtrain.runtime.diagnose.first_cause import Failures
from cloudtrain.runtime.diagnose.ranks import HINTS as OF_JOBS
from cloudtrain.runtime.foreground.end_signals import END_SIGNALS, GRACE_SECONDS, Signals
from cloudtrain.runtime.output import say
from cloudtrain.runtime.start.messages import Abort, Done, Kill, Message, Notify, Stop

POLL_SECONDS = 0.01
END_SECONDS = 15.0
"""The time that hosts may take to end after their ranks were killed."""

HINTS = {
    FailureClass.MISSING_DATA: "Check the path: ranks run in the working folder of the shell, or in that of --wdir.",
    FailureClass.DISK_FULL: "Free space, or write less data.",
    FailureClass.OUT_OF_MEMORY: "Use a smaller batch size, fewer ranks, or a machine with more memory.",
}
"""Hints that replace those that name fields of a job."""


class Host(Protocol):
    """The ranks of one host."""

    done: Done | None
    """Set when all of them have ended."""

    @property
    def scripts_started(self) -> bool:
        """Whether a signal can reach a script."""

    def send(self, message: Message) -> None:
        """Send `Stop`, `Notify`, `Abort` or `Kill`. The last two end the ranks."""

    def poll(self) -> Iterator[FailureReport]:
        """The reports of ranks that have failed since the last call."""


def lead(hosts: Sequence[Host], signals: Signals) -> int:
    """Watch the ranks until all have ended, a rank fails or a signal arrives, and then end them.

    Returns the exit status. Prints the cause of a failure.
    """
    failures, ended_by, kill_at = Failures(), 0, float("inf")
    while not _look(hosts, failures if not ended_by else None):
        if (failures.are_settled and not ended_by) or time.monotonic() >= kill_at:
            break
        try:
            number = signals.get(timeout=POLL_SECONDS)
        except queue.Empty:
            continue
        if number == own_number("SIGUSR1"):
            _broadcast(hosts, Notify("signal SIGUSR1"))
            continue
        if ended_by or not all(host.scripts_started for host in hosts):
            ended_by = ended_by or number
            break
        ended_by, kill_at = number, time.monotonic() + GRACE_SECONDS
        _broadcast(hosts, Stop(linux_number(number), END_SIGNALS[number]))
        again = "; press it again to kill them" if number == signal.SIGINT else ""
        say(f"{END_SIGNALS[number]}: the ranks have {GRACE_SECONDS:g} s to end{again}")
    if failures.reports and not ended_by:
        _broadcast(hosts, Abort())
        _wait(hosts, failures, GRACE_SECONDS, signals)
    _broadcast(hosts, Kill())
    _wait(hosts, failures, END_SECONDS)
    done = [host.done for host in hosts if host.done]
    if ended_by:
        is_complete = len(done) == len(hosts) and all(one.all for one in done)
        return 0 if is_complete else 128 + ended_by
    return _status(failures, [rank for one in done for rank in one.completed])


def _look(hosts: Sequence[Host], failures: Failures | None) -> bool:
    """Add the new failures. Returns whether all ranks of all hosts have ended."""
    for host in hosts:
        for report in host.poll():
            if failures:
                failures.add(report)
    return all(host.done for host in hosts)


def _wait(hosts: Sequence[Host], failures: Failures, seconds: float, signals: Signals | None = None) -> None:
    """Wait for the end of all ranks, or for a signal."""
    deadline = time.monotonic() + seconds
    while not _look(hosts, failures) and time.monotonic() < deadline:
        if signals and not signals.empty():
            signals.get()
            return
        time.sleep(POLL_SECONDS)


def _broadcast(hosts: Sequence[Host], message: Message) -> None:
    for host in hosts:
        host.send(message)


def _status(failures: Failures, completed: Sequence[int]) -> int:
    """The exit status. Prints the cause of a failure to stderr, after all other output."""
    if not failures.reports:
        return 0
    report = failures.cause(completed)
    kind, hint = report.failure_class, report.hint
    parts = [f"\n{report.summary()}  [{kind}]"]
    if hint:
        parts.append(HINTS.get(kind, hint) if hint == OF_JOBS.get(kind) else hint)
    if report.traceback:
        parts.append(f"\n{report.traceback.rstrip()}")
    with contextlib.suppress(OSError):  # the terminal may be closed
        sys.stderr.write(escape_text("\n".join(parts)) + "\n")
        sys.stderr.flush()
    return report.exit_code or 1
