"""Starts the node program on all nodes with a program that does not forward input, such as pbsdsh, blaunch or ssh.

Usage: ``python cloudtrain.pyz cloudtrain.runtime.batch.relay PROGRAM FOLDER HOST...``

The relay forwards its input to all nodes, and prints their output in whole lines, through files in a folder of the job
that all nodes share. `relay_node` runs on the nodes.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cloudtrain._system.descriptors import write_all
from cloudtrain.runtime.batch.start import starters
from cloudtrain.storage.atomic import replace_file

JOB, LINES, END, ENVIRON, BEAT = "job", "lines", "end", "environ", "beat"
"""The files with the first line, which has the secrets; the other lines; the mark of the end; the environment; and the
step's heartbeat."""

TICK_SECONDS = 0.1
"""The interval at which the processes of this machine are polled."""
BEAT_SECONDS = 10.0
LOST_SECONDS = 120.0
"""The time for which a node waits for a heartbeat of the step."""
READ_SIZE = 1 << 16
QUICK_SECONDS, LONGEST_PAUSE = 60.0, 2.0
"""The time for which the shared folder is polled often, while the job starts, and the longest interval after that."""

OWN_OF_A_NODE = ("HOSTNAME", "PWD", "OLDPWD", "PBS_NODENUM", "PBS_VNODENUM", "PBS_TASKNUM", "ALPS_APP_PE", "SSH_CLIENT",
                 "SSH_CONNECTION", "SSH_TTY", "TMPDIR", "XDG_RUNTIME_DIR")  # fmt: skip
"""Variables that differ between the nodes of a job."""


class Looks:
    """Decides when to poll the shared folder: often while a job starts and when there is new data, otherwise rarely."""

    def __init__(self) -> None:
        self._began = self._next = time.monotonic()
        self._pause = TICK_SECONDS

    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def looked(self, *, found: bool) -> None:
        is_quick = found or time.monotonic() < self._began + QUICK_SECONDS
        self._pause = TICK_SECONDS if is_quick else min(self._pause * 2, LONGEST_PAUSE)
        self._next = time.monotonic() + self._pause


class Relay:
    """The side of the batch step."""

    def __init__(self, folder: Path, names: Sequence[str], environ: Mapping[str, str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="relay-", dir=folder))
        self._names = names
        self._read = dict.fromkeys(names, 0)
        self._rest = dict.fromkeys(names, b"")
        self._has_job = True
        self._beats, self._beat_at = 0, float("-inf")
        shared = {name: value for name, value in environ.items() if name not in OWN_OF_A_NODE}
        replace_file(self.folder / ENVIRON, json.dumps(shared).encode(), mode=0o600)
        (self.folder / LINES).touch()

    def give_job(self, line: bytes) -> None:
        replace_file(self.folder / JOB, line, mode=0o600)

    def send(self, data: bytes) -> None:
        with open(self.folder / LINES, "ab") as file:
            file.write(data)

    def end(self) -> None:
        (self.folder / END).touch()

    def look(self, *, last: bool = False) -> bytes:
        """The lines that the nodes have printed since the last call; with ``last``, including an incomplete one."""
        if time.monotonic() - self._beat_at > BEAT_SECONDS:
            self._beats, self._beat_at = self._beats + 1, time.monotonic()
            replace_file(self.folder / BEAT, str(self._beats).encode())
        found = []
        for name in self._names:
            whole, _, rest = (self._rest[name] + self._new(name)).rpartition(b"\n")
            self._rest[name] = rest
            found.append(whole + b"\n" if whole else b"")
            if last and rest:
                found.append(rest + b"\n")
        if self._has_job and all((self.folder / f"out.{name}").exists() for name in self._names):
            self._has_job = False
            for name in (JOB, ENVIRON):  # every node has read the secrets
                (self.folder / name).unlink(missing_ok=True)
        return b"".join(found)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _new(self, name: str) -> bytes:
        try:
            with open(self.folder / f"out.{name}", "rb") as file:
                file.seek(self._read[name])
                data = file.read()
        except OSError:
            return b""
        self._read[name] += len(data)
        return data


def main() -> int:
    program, folder, *names = sys.argv[1:]
    relay = Relay(Path(folder), names, os.environ)
    try:
        return run(program, folder, names, relay)
    finally:
        relay.close()


def run(program: str, folder: str, names: Sequence[str], relay: Relay) -> int:
    """Forward input and output until the starters have ended. Returns the first exit code that is not 0."""
    first = bytearray()
    while not first.endswith(b"\n"):
        data = os.read(0, 1)
        if not data:
            return 1
        first += data
    relay.give_job(bytes(first))
    arguments = [str(relay.folder), folder]
    runtime = _runtime(bytes(first))
    started = [
        subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=2)
        for line in starters(program, names, runtime, arguments)
    ]
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        looks = Looks()
        while any(process.poll() is None for process in started):
            if selector.get_map() and selector.select(TICK_SECONDS):
                data = os.read(0, READ_SIZE)
                if data:
                    relay.send(data)
                else:
                    relay.end()
                    selector.unregister(0)
            elif not selector.get_map():
                time.sleep(TICK_SECONDS)
            if looks.is_due():
                lines = relay.look()
                looks.looked(found=bool(lines))
                write_all(1, lines)
    write_all(1, relay.look(last=True))
    return next((process.returncode for process in started if process.returncode), 0)


def _runtime(line: bytes) -> str:
    """The path of the bundled runtime, which is in the line for the nodes."""
    return str(json.loads(line)["runtime"])


if __name__ == "__main__":
    sys.exit(main())
