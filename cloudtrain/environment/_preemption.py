"""Combines every preemption notice into one.

- SIGTERM, which every scheduler sends. Its grace period is the contract's ``stop_grace``.
- SIGINT from the runtime, which passes Ctrl-C on. Without a runtime, SIGINT raises KeyboardInterrupt as usual.
- SIGUSR1, which Slurm sends ahead of time (``--signal=USR1@120``) and Open MPI forwards.
- The notice that cloudtrain's runtime writes to the host's run folder when the platform or another host sends one.
- The notice of an EC2 spot instance, if enabled; see `cloudtrain.environment.spot`.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from cloudtrain._system.processes import after_fork_in_child
from cloudtrain._system.signals import own_number
from cloudtrain.contract import PREEMPTED, SPOT_VARIABLE, Notice, Settings
from cloudtrain.environment.job import may_exit, tell_to_end

SIGNALS = tuple(filter(None, map(own_number, ("SIGTERM", "SIGUSR1"))))

_notice: Notice | None = None
_installed = False


def preemption() -> Notice | None:
    """The notice that this job is about to be stopped, or None. Cheap enough to call at every step.

    From the first call on, SIGTERM, SIGUSR1 and a runtime's SIGINT no longer end this process; each produces a notice.
    A signal for which the script has its own handler keeps that handler. Call this in the main thread: Python cannot
    handle signals in another.
    """
    global _notice
    if not _installed:
        _install()
    if _notice is None:
        _notice = _runtime_notice()
    return _notice


def exit_if_preempted() -> None:
    """Exit if there is a notice and this is rank 0. Call it once the state is saved.

    The exit status makes the job ``Interrupted``, not failed. Other ranks continue until rank 0 has exited, which ends
    them: ranks receive a notice at different steps, and a rank that exited earlier would fail a collective that rank 0
    still needs. A script that calls ``Checkpointer.maybe_save`` exits after the step that was saved because of the
    notice; with sharded checkpoints, all ranks exit after the same step.

    Raises:
        SystemExit: the interpreter shuts down normally, and pending checkpoints are committed.
    """
    if may_exit(preemption() is not None):
        sys.exit(PREEMPTED)


def _install() -> None:
    global _installed
    Notice(0.0, "")  # the handler may interrupt an import, so what it uses is imported first
    try:
        for number in SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _on_signal)
        has_runtime = "CLOUDTRAIN_RUN_DIR" in os.environ
        if has_runtime and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _on_signal)
    except ValueError:
        return  # not the main thread
    _installed = True
    atexit.register(_ignore_signals)
    if os.environ.get(SPOT_VARIABLE) and not os.environ.get("CLOUDTRAIN_RUN_DIR"):
        from cloudtrain.environment.spot import watch_spot

        watch_spot(_set_notice)


def _on_signal(number: int, _frame: FrameType | None) -> None:
    if number == own_number("SIGTERM"):
        tell_to_end()
    grace = Settings.from_environ().stop_grace
    _set_notice(_runtime_notice() or Notice(time.time() + grace, f"signal {signal.Signals(number).name}"))


def _ignore_signals() -> None:
    """Let the interpreter shut down: it restores the default handlers, which would turn exit status 0 into a signal."""
    for number in (*SIGNALS, signal.SIGINT):
        if signal.getsignal(number) is _on_signal:
            signal.signal(number, signal.SIG_IGN)


def _set_notice(notice: Notice) -> None:
    global _notice
    if _notice is None:
        _notice = notice


def _runtime_notice() -> Notice | None:
    run = os.environ.get("CLOUDTRAIN_RUN_DIR")
    return Notice.read(Path(run)) if run else None


def _reset() -> None:
    """Restore the default handlers in a forked child, such as a data loader worker, which is ended with SIGTERM."""
    global _notice, _installed
    _notice, _installed = None, False
    for number in (*SIGNALS, signal.SIGINT):
        if signal.getsignal(number) is _on_signal:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


after_fork_in_child(_reset)
