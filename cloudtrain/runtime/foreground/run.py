"""Runs a program as ranks in the foreground, for ``cloudtrain run``.

Nothing is packed, copied or uploaded. The ranks have the working folder and the environment of the shell, and their
output is streamed. This process ends with the ranks, and its exit status is that of the rank that failed first.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from cloudtrain._system.queues import SignalSafeQueue
from cloudtrain._system.signals import handle, unblock
from cloudtrain.contract.text import escape_text
from cloudtrain.errors import CloudtrainError
from cloudtrain.link.secret import fresh_secret
from cloudtrain.runtime.descendants import adopt_orphans
from cloudtrain.runtime.foreground.end_signals import END_SIGNALS, Signals
from cloudtrain.runtime.foreground.plan import Order, alone
from cloudtrain.runtime.foreground.ranks import HostRanks
from cloudtrain.runtime.output import say

assert sys.platform != "win32", "jobs run on Linux and macOS"


def run_here(order: Order, run: Path, signals: Signals) -> int:
    """Run all ranks on this machine. Returns the exit status, after all processes have ended.

    Raises:
        CloudtrainError: the ranks cannot be started.
        OSError: the program cannot be started.
    """
    ranks = HostRanks(order, run, "", alone(order.ranks), fresh_secret(), signals)
    if order.verbose:
        say(f"starting {order.ranks} ranks: {ranks.command}")
    if not signals.empty():
        number = signals.get()
        if number in END_SIGNALS:
            return 128 + number
        signals.put(number)
    from cloudtrain.runtime.standard_input import offer

    offer(str(run))
    try:
        ranks.start()
        from cloudtrain.runtime.foreground.lead import lead  # while the interpreters of the ranks start

        return lead([ranks], signals) or int(ranks.lost_output)
    finally:
        ranks.end()


def main(given: dict[str, Any]) -> int:
    """Run an `Order`, given as a dictionary, on this machine or on ``hosts``. Returns the exit status."""
    hosts, ssh = given.pop("hosts", []), given.pop("ssh", [])
    order = Order.from_dict(given)
    adopt_orphans()
    folder = tempfile.mkdtemp(prefix="ct-run-")
    signals: Signals = SignalSafeQueue()
    for number in END_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup does with SIGHUP
            signal.signal(number, lambda received, _frame: signals.put(received))
    unblock(tuple(END_SIGNALS))
    handle("SIGUSR1", lambda received, _frame: signals.put(received))
    try:
        if hosts:
            from cloudtrain.runtime.foreground.hosts import run_on_hosts  # few runs have several

            return run_on_hosts(order, hosts, ssh, signals)
        return run_here(order, Path(folder), signals)
    except CloudtrainError as error:
        sys.stderr.write(f"Error: {escape_text(str(error))}\n")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
