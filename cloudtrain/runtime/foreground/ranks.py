"""The ranks of one host in the foreground, from their start to their end.

Modules that are not needed before the ranks have started are imported where they are used.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudtrain._system.queues import SignalSafeQueue
from cloudtrain.contract import FailureReport, Notice, gpu_count
from cloudtrain.link.secret import write_ranks_secret
from cloudtrain.runtime.descendants import end_descendants
from cloudtrain.runtime.diagnose.machine_faults import gpu_faults, memory_kill_count
from cloudtrain.runtime.foreground.end_signals import GRACE_SECONDS
from cloudtrain.runtime.foreground.plan import Order, Place, prepare
from cloudtrain.runtime.launchers.agent_launches import make_launch
from cloudtrain.runtime.output import OutputMerger

if TYPE_CHECKING:
    from cloudtrain.runtime.start.messages import Done, Message

INTERRUPT_SECONDS = 10.0
"""The time that ranks may take to end after SIGINT, before they get SIGTERM."""


class HostRanks:
    """The ranks of this host: a `lead.Host`."""

    def __init__(
        self,
        order: Order,
        run: Path,
        host: str,
        place: Place,
        secret: str,
        interrupts: SignalSafeQueue[Any],
    ) -> None:
        """
        Args:
            run: the run folder, for named pipes and the records of the ranks.
            host: the name of this host in reports; empty if there is only one.
            secret: the secret of the ranks.
            interrupts: a queue whose items end the wait for pending checkpoints.

        Raises CloudtrainError if the ranks cannot be started.
        """
        write_ranks_secret(run, secret)
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
        self._stopped = False
        """Whether the ranks have been signalled to end."""
        self.done: Done | None = None
        self.has_ended = False
        """Whether all their processes have ended, and their output is complete."""
        self._interrupts = interrupts
        self._interrupt_until = -math.inf
        """The time until which ranks that are to end get SIGINT, and after which they get SIGTERM."""

    @property
    def command(self) -> str:
        """The command in shell syntax."""
        plan = self._prepared.plan
        starts = () if plan.agent else plan.starts
        return " : ".join(dict.fromkeys(shlex.join(start.command) for start in starts)) or shlex.join(
            plan.command
        )

    def start(self) -> None:
        """Raises OSError if the program cannot be started."""
        self.launch.start()

    @property
    def scripts_started(self) -> bool:
        return self.launch.scripts_started

    def poll(self) -> Iterator[FailureReport]:
        """The reports of ranks that have failed since the last call."""
        if self.done:
            return
        running = self.launch.running  # before poll(), so that poll() returns all exits if nothing runs
        failed = False
        for rank_exit in self.launch.poll():
            if rank_exit.exit_code and not self._stopped:
                from cloudtrain.runtime.diagnose.ranks import diagnose

                failed = True
                faults = gpu_faults(self._started) if gpu_count(os.environ) else ""
                kills = memory_kill_count() - self._kills
                yield diagnose(rank_exit, self._host, memory_kills=kills, gpu_faults=faults)
        if self._stopped:
            interrupts = time.monotonic() < self._interrupt_until
            # repeated for ranks that have started since the last call
            self.launch.signal_ranks(signal.SIGINT if interrupts else signal.SIGTERM)
        elif not running and not failed:
            report = self.launch.agent_report(self._host, memory_kill_count() - self._kills)
            if report:
                yield report
        if not running:
            self._set_done()

    def send(self, message: Message) -> None:
        """Handle a message of the leading process."""
        from cloudtrain.runtime.start.messages import Abort, Kill, Notify, Stop

        if isinstance(message, Stop):
            self._stopped = True
            if message.signal == signal.SIGINT:  # ranks get SIGINT first, and SIGTERM if they are slow to end
                self._interrupt_until = time.monotonic() + INTERRUPT_SECONDS
            self._notify(message.reason)
        elif isinstance(message, Notify):
            self._notify(message.reason)
        elif isinstance(message, Abort):
            self._wait_for_commits()
            self.end()
        elif isinstance(message, Kill):
            self.end()

    def _report_lost(self, error: OSError) -> None:
        self.lost_output = True
        with contextlib.suppress(OSError):
            sys.stderr.write(f"Error: {error.strerror}\n")
            sys.stderr.flush()

    def _notify(self, reason: str) -> None:
        """Write a notice for the ranks."""
        with contextlib.suppress(OSError):  # a full disk
            Notice(time.time() + GRACE_SECONDS, reason).write(self._run)

    def _wait_for_commits(self) -> None:
        """Give pending checkpoints a grace period, before the ranks of a failed run are killed."""
        pending, deadline = self.launch.commits(), time.monotonic() + GRACE_SECONDS
        while pending & self.launch.commits() and time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                self._interrupts.get(timeout=0.02)
                return

    def end(self) -> None:
        """Kill all processes that still run, and pass on the rest of the output."""
        if self.has_ended:
            return
        self.has_ended = True
        if self._prepared.rendezvous:
            self._prepared.rendezvous.kill()
            self._prepared.rendezvous.wait()
        self.launch.kill()
        end_descendants()
        self.launch.clean_up()
        if self._output.started:
            self._output.close()
        self._set_done()

    def _set_done(self) -> None:
        from cloudtrain.runtime.start.messages import Done

        completed = [rank for rank, rank_exit in self.launch.exits.items() if rank_exit.exit_code == 0]
        self.done = Done(completed, self.launch.completed)
