"""Every way to learn that the machine is about to be taken away, as one answer.

- SIGTERM, which every scheduler sends; its grace is the contract's ``stop_grace``.
- SIGUSR1, which Slurm sends ahead of time (``--signal=USR1@120``) and Open MPI passes on.
- The notice of cloudtrain's runtime, in the host's run folder: its platform's, or that of any other host.
- The notice of an EC2 spot instance, where it is asked for; see `cloudtrain.environment.spot`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from cloudtrain.contract import PREEMPTED, SPOT_VARIABLE, Notice, Settings
from cloudtrain.environment.exit_policy import may_exit

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)

_notice: Notice | None = None
_listens = False


def preemption() -> Notice | None:
    """The notice that this job is about to be stopped, or None. Cheap: ask at every step.

    From the first call on, SIGTERM and SIGUSR1 no longer end this process: they are its notice. A script
    that never asks, or that handles a signal itself, keeps what it has. Ask in the main thread: signals
    cannot be listened to from another.
    """
    global _notice
    if not _listens:
        _listen()
    if _notice is None:
        _notice = _told_by_runtime()
    return _notice


def exit_if_preempted() -> None:
    """Leave, if there is a notice and this is rank 0; to be called when the state is saved.

    The exit status makes the job ``Interrupted``, not failed. Other ranks go on until rank 0 has left, which
    ends them: ranks hear of a notice at different steps, and one that left first would fail a collective
    that rank 0 still needs. A script that calls ``Checkpointer.maybe_save`` leaves after the step at which that
    has saved for the notice; ranks that save together leave together.

    Raises:
        SystemExit: the interpreter ends as usual, and checkpoints on their way are committed.
    """
    if may_exit(preemption() is not None):
        sys.exit(PREEMPTED)


def _listen() -> None:
    global _listens
    try:
        for number in SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _on_signal)
    except ValueError:
        return  # not the main thread
    _listens = True
    if os.environ.get(SPOT_VARIABLE) and not os.environ.get("CLOUDTRAIN_RUN_DIR"):
        from cloudtrain.environment.spot import watch_spot

        watch_spot(_take)


def _on_signal(number: int, _frame: FrameType | None) -> None:
    grace = Settings.from_environ().stop_grace
    _take(_told_by_runtime() or Notice(time.time() + grace, f"signal {signal.Signals(number).name}"))


def _take(notice: Notice) -> None:
    global _notice
    if _notice is None:
        _notice = notice


def _told_by_runtime() -> Notice | None:
    run = os.environ.get("CLOUDTRAIN_RUN_DIR")
    return Notice.read(Path(run)) if run else None


def _forget() -> None:
    """In a forked child: who starts it, a data loader for one, ends it by SIGTERM."""
    global _notice, _listens
    _notice, _listens = None, False
    for number in SIGNALS:
        if signal.getsignal(number) is _on_signal:
            signal.signal(number, signal.SIG_DFL)


os.register_at_fork(after_in_child=_forget)
