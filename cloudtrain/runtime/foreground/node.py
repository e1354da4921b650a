"""One of several hosts of a run in the foreground: its ranks, at the other end of a connection.

Standard input carries the messages of `foreground_hosts`, one JSON object in each line; its end ends the ranks.
Standard output carries the lines of the ranks, which begin with their prefix, and the messages of this host, which
begin with `MARK`.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from cloudtrain._system.signals import SIGHUP
from cloudtrain.contract.frameworks import SHARED_PORTS
from cloudtrain.errors import CloudtrainError
from cloudtrain.runtime.descendants import adopt_orphans
from cloudtrain.runtime.foreground.plan import Order, Place
from cloudtrain.runtime.foreground.ranks import HostRanks
from cloudtrain.runtime.output import write_all
from cloudtrain.runtime.ports import free_port

MARK = b"\0cloudtrain "
POLL_SECONDS = 0.02


def main() -> int:
    """Run this host's ranks. Returns 0 unless there was nothing to run."""
    for number in (signal.SIGINT, SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the head decides
    inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(inbox,), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda _number, _frame: inbox.put({"type": "kill"}))
    adopt_orphans()
    folder = tempfile.mkdtemp(prefix="ct-run-")
    try:
        return _run(inbox, Path(folder))
    except (CloudtrainError, OSError, ValueError) as error:
        hint = error.hint if isinstance(error, CloudtrainError) else ""
        message = error.message if isinstance(error, CloudtrainError) else str(error)
        _send({"type": "refused", "message": message, "hint": hint})
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(inbox: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Runs in a thread, which still reads when the interpreter ends: that needs the lock of ``sys.stdin``."""
    with open(0, "rb", closefd=False) as messages:
        for line in messages:
            inbox.put(json.loads(line))
    inbox.put({"type": "kill"})


def _send(message: dict[str, Any]) -> None:
    write_all(1, MARK + json.dumps(message).encode() + b"\n")


def _run(inbox: queue.SimpleQueue[dict[str, Any]], run: Path) -> int:
    first = inbox.get()
    if first["type"] != "order":
        return 1
    os.environ.update(first["environment"])
    order = Order.from_dict(first["order"])
    os.chdir(first["folder"])
    for program in order.programs:
        folder, script = program.folder or first["folder"], program.arguments[0]
        if script not in ("-m", "--") and not os.path.isfile(os.path.join(folder, script)):
            raise FileNotFoundError(f"there is no file {script} in {folder}")
        if shutil.which(program.python) is None:
            raise FileNotFoundError(f"there is no interpreter {program.python}")
    ports = {name: free_port() for name in ("master", *SHARED_PORTS)}
    _send({"type": "ready", "ports": ports, "ssh": os.environ.get("SSH_CONNECTION", "")})
    start = inbox.get()
    if start["type"] != "start":
        return 0
    ranks = HostRanks(order, run, start["name"], Place(**start["place"]), first["secret"])
    try:
        ranks.start()
        _watch(ranks, inbox)
    finally:
        ranks.end()
    _send({"type": "done", "completed": ranks.completed_ranks, "all": ranks.launch.completed})
    return 0


def _watch(ranks: HostRanks, inbox: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Report failures until all ranks have ended, or have to be killed."""
    failed = False
    while True:
        running = ranks.launch.running
        for report in ranks.look():
            failed = True
            _send({"type": "failed", "report": report.to_dict()})
        if not running and not failed:
            return
        try:
            message = inbox.get(timeout=POLL_SECONDS)
        except queue.Empty:
            continue
        if message["type"] == "stop":
            ranks.stop(message["signal"], message["reason"])
            if not running:
                return
        elif message["type"] == "notice":
            ranks.notify(message["reason"])
        elif message["type"] == "abort":
            ranks.wait_for_commits(inbox)
            return
        else:
            return


if __name__ == "__main__":
    sys.exit(main())
