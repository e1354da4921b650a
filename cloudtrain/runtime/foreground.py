"""Runs a program as ranks of this machine in the foreground, for ``cloudtrain run``.

Nothing is packed, copied or uploaded. The ranks have the working folder and the environment of the shell, their output
is streamed, and their end is the end of this process: the exit status is that of the rank that failed first.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from cloudtrain._system.signals import handle, unblock
from cloudtrain.contract import FailureClass, FailureReport, Notice, gpu_count
from cloudtrain.contract.text import escape_text
from cloudtrain.errors import CloudtrainError
from cloudtrain.link.secret import fresh_secret
from cloudtrain.runtime.descendants import adopt_orphans, end_descendants
from cloudtrain.runtime.diagnose import HINTS as OF_JOBS
from cloudtrain.runtime.diagnose import diagnose, first_cause, with_ended_ranks
from cloudtrain.runtime.foreground_plan import Order, Prepared, prepare
from cloudtrain.runtime.job_secret import write_ranks_secret
from cloudtrain.runtime.kernel_log import gpu_faults
from cloudtrain.runtime.launch import Launch
from cloudtrain.runtime.memory_kills import memory_kill_count
from cloudtrain.runtime.output import OutputMerger, say

assert sys.platform != "win32", "jobs run on Linux and macOS"

POLL_SECONDS = 0.01
SETTLE_SECONDS = 0.7
"""How long failures are collected after the first one, which may be a consequence of another rank's."""
CAUSE_SECONDS = 4.0
"""The same if a rank was killed because it had lost another one."""
GRACE_SECONDS = 30.0
"""How long ranks may save their state and end after Ctrl-C, and pending checkpoints after a failure."""

HINTS = {
    FailureClass.MISSING_DATA: "Check the path: ranks run in the working folder of the shell, or in that of --wdir.",
    FailureClass.DISK_FULL: "Free space, or write less data.",
    FailureClass.OUT_OF_MEMORY: "Use a smaller batch size, fewer ranks, or a machine with more memory.",
}
"""In place of those that name fields of a job."""

END_SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "a closed terminal"}


@dataclass
class ForegroundRun:
    """The ranks of one command line, from their start to their end."""

    order: Order
    run: Path
    """The run folder: named pipes, and the records of the ranks."""
    signals: queue.SimpleQueue[int] = field(default_factory=queue.SimpleQueue)
    failures: list[FailureReport] = field(default_factory=list)
    _ended_by: int = 0
    """The signal that ends this run."""
    _decide_at: float = 0.0
    """When the cause of the failures is decided, on the clock of `time.monotonic`."""
    _waits_for_cause: bool = False
    _kill_at: float = 0.0

    def execute(self) -> int:
        """Returns the exit status. No process is left then.

        Raises:
            CloudtrainError: the ranks cannot be started.
            OSError: the program cannot be started.
        """
        write_ranks_secret(self.run, fresh_secret(), 0)
        prepared = prepare(self.order, self.run, os.environ)
        if self.order.verbose:
            say(f"starting {self.order.ranks} ranks: {shlex.join(prepared.plan.command)}")
        output = OutputMerger(1, Path(self.order.output) if self.order.output else None)
        launch = Launch(prepared.plan, output)
        started, kills = time.time(), memory_kill_count()
        try:
            launch.start()
            self._wait(launch, started, kills)
        finally:
            self._end(launch, prepared, output)
        return self._status(launch)

    def _wait(self, launch: Launch, started: float, kills: int) -> None:
        """Wait until all ranks have ended, or have to be killed."""
        while True:
            running = launch.running
            self._look(launch, started, kills)
            now = time.monotonic()
            if (
                not running
                or (self._decide_at and now >= self._decide_at)
                or (self._kill_at and now >= self._kill_at)
            ):
                break
            with contextlib.suppress(queue.Empty):
                if self._on_signal(launch, self.signals.get(timeout=POLL_SECONDS)):
                    return
        if self.failures and not self._ended_by:
            self._wait_for_commits(launch)

    def _look(self, launch: Launch, started: float, kills: int) -> None:
        """Report the ranks that have failed since the last look."""
        for rank_exit in launch.poll():
            if rank_exit.exit_code and not self._ended_by:
                faults = gpu_faults(started) if gpu_count(os.environ) else ""
                report = diagnose(rank_exit, "", memory_kills=memory_kill_count() - kills, gpu_faults=faults)
                self._fail(report)
        if self._ended_by:
            launch.signal_ranks(signal.SIGTERM)  # including ranks that started since
        elif not launch.running and not self.failures:
            report_of_agent = launch.agent_report("", memory_kill_count() - kills)
            if report_of_agent:
                self._fail(report_of_agent)

    def _fail(self, report: FailureReport) -> None:
        self.failures.append(report)
        lost_another = report.signal is not None and report.failure_class == FailureClass.COLLECTIVE_TIMEOUT
        settled = time.monotonic() + (CAUSE_SECONDS if lost_another else SETTLE_SECONDS)
        if not self._decide_at:
            self._decide_at, self._waits_for_cause = settled, lost_another
        elif self._waits_for_cause and not lost_another:
            self._decide_at, self._waits_for_cause = min(self._decide_at, settled), False

    def _on_signal(self, launch: Launch, number: int) -> bool:
        """Pass on the wish to end. Returns whether the ranks have to be killed now."""
        if number == signal.SIGUSR1:
            self._notify(f"signal {signal.Signals(number).name}")
            return False
        if self._ended_by:
            return True
        self._ended_by = number
        self._kill_at = time.monotonic() + GRACE_SECONDS
        self._notify(END_SIGNALS[signal.Signals(number)])
        if not launch.scripts_started:
            return True
        again = "; press it again to kill them" if number == signal.SIGINT else ""
        say(f"{END_SIGNALS[signal.Signals(number)]}: the ranks have {GRACE_SECONDS:g} s to end{again}")
        return False

    def _notify(self, reason: str) -> None:
        with contextlib.suppress(OSError):  # a full disk
            Notice(time.time() + GRACE_SECONDS, reason).write(self.run)

    def _wait_for_commits(self, launch: Launch) -> None:
        """Give pending checkpoints a grace period before the ranks are killed."""
        pending, deadline = launch.commits(), time.monotonic() + GRACE_SECONDS
        while pending & launch.commits() and time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                self.signals.get(timeout=POLL_SECONDS)
                return

    def _end(self, launch: Launch, prepared: Prepared, output: OutputMerger) -> None:
        if prepared.rendezvous:
            prepared.rendezvous.kill()
            prepared.rendezvous.wait()
        launch.kill()
        end_descendants()
        launch.clean_up()
        if output.started:
            output.close()

    def _status(self, launch: Launch) -> int:
        if self._ended_by:
            return 0 if launch.completed else 128 + self._ended_by
        if not self.failures:
            return 0
        done = [rank for rank, rank_exit in launch.exits.items() if rank_exit.exit_code == 0]
        report = with_ended_ranks(first_cause(self.failures), done)
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


def main(argument: str) -> int:
    """Run an `Order`, which is given as JSON. Returns the exit status."""
    order = Order(**json.loads(argument))
    adopt_orphans()
    folder = tempfile.mkdtemp(prefix="ct-run-")
    run = ForegroundRun(order, Path(folder))
    for number in END_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, lambda received, _frame: run.signals.put(received))
    unblock(tuple(END_SIGNALS))
    handle("SIGUSR1", lambda received, _frame: run.signals.put(received))
    try:
        return run.execute()
    except CloudtrainError as error:
        sys.stderr.write(f"Error: {escape_text(str(error))}\n")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
