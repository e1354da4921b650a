"""Runs the ranks of one of several hosts of a run in the foreground, as the remote end of a connection.

Standard input carries `messages`, and closing it ends the ranks. Standard output carries the lines of the ranks, which
begin with their prefix, and the messages of this host, in frames.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

from cloudtrain._system.queues import SignalSafeQueue
from cloudtrain._system.signals import SIGHUP
from cloudtrain.contract.frameworks import SHARED_PORTS
from cloudtrain.errors import CloudtrainError, PlatformError
from cloudtrain.link.secret import derive
from cloudtrain.runtime.descendants import adopt_orphans
from cloudtrain.runtime.foreground.plan import Order, Place
from cloudtrain.runtime.foreground.ranks import HostRanks
from cloudtrain.runtime.output import write_all
from cloudtrain.runtime.ports import free_port
from cloudtrain.runtime.start import messages
from cloudtrain.runtime.start.messages import Message

POLL_SECONDS = 0.02

NO_INTERPRETER = "Install it there at the same path, or start the ranks with a Python that all hosts have."


def main() -> int:
    """Run this host's ranks. Returns 0 unless there was nothing to run."""
    for number in (signal.SIGINT, SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the leading process decides about the end
    inbox: SignalSafeQueue[Message] = SignalSafeQueue()
    threading.Thread(target=_read, args=(inbox,), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda _number, _frame: inbox.put(messages.Kill()))
    adopt_orphans()
    folder = tempfile.mkdtemp(prefix="ct-run-")
    try:
        return _run(inbox, Path(folder))
    except (CloudtrainError, OSError, ValueError) as error:
        hint = error.hint if isinstance(error, CloudtrainError) else ""
        message = error.message if isinstance(error, CloudtrainError) else str(error)
        _send(messages.Refused(message, hint))
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(inbox: SignalSafeQueue[Message]) -> None:
    """Put messages from standard input into ``inbox``, in a thread; at its end, a `Kill`."""
    given = messages.Input()
    while message := given.wait():
        inbox.put(message)
    inbox.put(messages.Kill())


def _send(message: Message) -> None:
    write_all(1, message.frames(0))


def _run(inbox: SignalSafeQueue[Message], run: Path) -> int:
    first = inbox.get()
    if not isinstance(first, messages.Ranks):
        return 1
    os.environ.update(first.environment)
    order = Order.from_dict(first.order)
    os.chdir(first.folder)
    for program in order.programs:
        folder, script = program.folder or first.folder, program.arguments[0]
        if script not in ("-m", "--") and not os.path.isfile(os.path.join(folder, script)):
            raise FileNotFoundError(f"there is no file {script} in {folder}")
        if shutil.which(program.python) is None:
            raise PlatformError(f"there is no interpreter {program.python}", hint=NO_INTERPRETER)
    ports = {name: free_port() for name in ("master", *SHARED_PORTS)}
    _send(messages.Ready(ports, os.environ.get("SSH_CONNECTION", "")))
    start = inbox.get()
    if not isinstance(start, messages.Start):
        return 0
    ranks = HostRanks(
        order, run, start.name, Place(**start.place), derive(first.secret, "ranks").hex(), inbox
    )
    try:
        ranks.start()
        failed = False
        while not ranks.has_ended and (failed or not ranks.done):
            for report in ranks.poll():
                failed = True
                _send(messages.Failed(report.to_dict()))
            with contextlib.suppress(queue.Empty):
                message = inbox.get(timeout=POLL_SECONDS)
                ranks.send(message)
                failed = failed and not isinstance(message, messages.Stop)  # no Abort follows a Stop
    finally:
        ranks.end()
    assert ranks.done, "they have ended"
    _send(ranks.done)
    return 0


if __name__ == "__main__":
    sys.exit(main())
