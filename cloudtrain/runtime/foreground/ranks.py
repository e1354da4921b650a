"""The ranks of one host in the foreground, from their start to their end, and the report of it."""

from __future__ import annotations

import contextlib
import math
import os
import queue
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cloudtrain._system.signals import SIGHUP
from cloudtrain.contract import FailureClass, FailureReport, Notice, gpu_count
from cloudtrain.contract.text import escape_text
from cloudtrain.runtime.descendants import end_descendants
from cloudtrain.runtime.diagnose.first_cause import Failures
from cloudtrain.runtime.diagnose.machine_faults import gpu_faults, memory_kill_count
from cloudtrain.runtime.diagnose.ranks import HINTS as OF_JOBS, diagnose
from cloudtrain.runtime.foreground.plan import Order, Place, prepare
from cloudtrain.runtime.job_secret import write_ranks_secret
from cloudtrain.runtime.launchers.agent_launches import make_launch
from cloudtrain.runtime.output import OutputMerger

GRACE_SECONDS = 30.0
"""How long ranks may save their state and end after Ctrl-C, and pending checkpoints after a failure."""
INTERRUPT_SECONDS = 10.0
"""How long ranks may take to end after SIGINT. Then they get SIGTERM."""


class HostRanks:
    """Starts the ranks of this host, and reports those that fail. ``stopped``: they have been signalled to end."""

    def __init__(self, order: Order, run: Path, host: str, place: Place, secret: str) -> None:
        """
        Args:
            run: the run folder: named pipes, and the records of the ranks.
            host: the name of this host in reports; empty if there is only one.
            secret: the job secret.

        Raises CloudtrainError if the ranks cannot be started.
        """
        write_ranks_secret(run, secret, 0)
        self._run, self._host = run, host
        self._prepared = prepare(order, run, os.environ, place)
        self._output = OutputMerger(
            1, Path(order.output) if order.output else None, on_error=self._report_lost
        )
        self.lost_output = False
        """Whether a part of the ranks' output could not be written."""
        self.launch = make_launch(self._prepared.plan, self._output)
        self._kills = memory_kill_count()
        self._started = time.monotonic()
        self.stopped = False
        self._interrupt_until = -math.inf
        """Until then, ranks that are to end get SIGINT."""

    @property
    def command(self) -> str:
        """In shell syntax."""
        plan = self._prepared.plan
        starts = () if plan.agent else plan.starts
        return " : ".join(dict.fromkeys(shlex.join(start.command) for start in starts)) or shlex.join(
            plan.command
        )

    def start(self) -> None:
        """Raises OSError if the program cannot be started."""
        self.launch.start()

    def look(self) -> Iterator[FailureReport]:
        """The ranks that have failed since the last look."""
        running = self.launch.running  # before poll(), which then has all exits
        failed = False
        for rank_exit in self.launch.poll():
            if rank_exit.exit_code and not self.stopped:
                failed = True
                faults = gpu_faults(self._started) if gpu_count(os.environ) else ""
                kills = memory_kill_count() - self._kills
                yield diagnose(rank_exit, self._host, memory_kills=kills, gpu_faults=faults)
        if self.stopped:
            interrupts = time.monotonic() < self._interrupt_until
            # including ranks that started since
            self.launch.signal_ranks(signal.SIGINT if interrupts else signal.SIGTERM)
        elif not running and not failed:
            report = self.launch.agent_report(self._host, memory_kill_count() - self._kills)
            if report:
                yield report

    def _report_lost(self, error: OSError) -> None:
        self.lost_output = True
        with contextlib.suppress(OSError):
            sys.stderr.write(f"Error: {error.strerror}\n")
            sys.stderr.flush()

    def stop(self, number: int, reason: str) -> None:
        """End the ranks. After Ctrl-C, they get SIGINT, and SIGTERM if they are slow to end."""
        self.stopped = True
        if number == signal.SIGINT:
            self._interrupt_until = time.monotonic() + INTERRUPT_SECONDS
        self.notify(reason)

    def notify(self, reason: str) -> None:
        """Write a notice for the ranks."""
        with contextlib.suppress(OSError):  # a full disk
            Notice(time.time() + GRACE_SECONDS, reason).write(self._run)

    def wait_for_commits(self, interrupted: queue.SimpleQueue[Any]) -> None:
        """Give pending checkpoints a grace period, before the ranks of a failed run are killed."""
        pending, deadline = self.launch.commits(), time.monotonic() + GRACE_SECONDS
        while pending & self.launch.commits() and time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                interrupted.get(timeout=0.02)
                return

    def end(self) -> None:
        """Kill all that still runs, and pass on the rest of the output."""
        if self._prepared.rendezvous:
            self._prepared.rendezvous.kill()
            self._prepared.rendezvous.wait()
        self.launch.kill()
        end_descendants()
        self.launch.clean_up()
        if self._output.started:
            self._output.close()

    @property
    def completed_ranks(self) -> list[int]:
        return [rank for rank, rank_exit in self.launch.exits.items() if rank_exit.exit_code == 0]


HINTS = {
    FailureClass.MISSING_DATA: "Check the path: ranks run in the working folder of the shell, or in that of --wdir.",
    FailureClass.DISK_FULL: "Free space, or write less data.",
    FailureClass.OUT_OF_MEMORY: "Use a smaller batch size, fewer ranks, or a machine with more memory.",
}
"""In place of those that name fields of a job."""

END_SIGNALS: dict[int, str] = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    SIGHUP: "a closed terminal",
}


def asked_to_end(number: int) -> str:
    """The line that a signal prints."""
    again = "; press it again to kill them" if number == signal.SIGINT else ""
    return f"{END_SIGNALS[number]}: the ranks have {GRACE_SECONDS:g} s to end{again}"


def status_of(failures: Failures, completed: Sequence[int]) -> int:
    """The exit status. Prints the cause of a failure."""
    if not failures.reports:
        return 0
    report = failures.cause(completed)
    show(report)
    return report.exit_code or 1


def show(report: FailureReport) -> None:
    """Print a failure, the cause last, on stderr."""
    kind, hint = report.failure_class, report.hint
    parts = [f"\n{report.summary()}  [{kind}]"]
    if hint:
        parts.append(HINTS.get(kind, hint) if hint == OF_JOBS.get(kind) else hint)
    if report.traceback:
        parts.append(f"\n{report.traceback.rstrip()}")
    with contextlib.suppress(OSError):  # the terminal may be closed
        sys.stderr.write(escape_text("\n".join(parts)) + "\n")
        sys.stderr.flush()
