"""Four hosts behind ssh and a spare one, with their storage, and the faults that hit them at random."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ssh_hosts import SshHosts

BUCKET, PORT = "attacked", 9000
CALM_SECONDS = (10.0, 25.0)
"""From the end of a fault to the next one."""
PAUSE_SECONDS = 30.0
OUTAGE_SECONDS = (2.0, 25.0)
"""Of the network of a host, and of the storage."""

SCRIPT = """
import hashlib, os, sys, time
from pathlib import Path

from cloudtrain import environment
from cloudtrain.checkpoint import Checkpointer

folder, attempt = Path(sys.argv[1]), os.environ["CLOUDTRAIN_ATTEMPT"]
rank, size = environment.rank(), environment.world_size()
journal = os.open(folder / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(*values):
    os.write(journal, (" ".join(map(str, values)) + "\\n").encode())


def meet(step):  # like a collective: no rank is a step ahead of another; rank 0 decides on the end
    own = folder / f"{attempt}-{rank}"
    own.with_suffix(".new").write_text(f"{step} {int(rank == 0 and (folder / 'enough').exists())}")
    own.with_suffix(".new").replace(own)
    found = {}
    while len(found) < size:
        for other in range(size):
            with_step = (folder / f"{attempt}-{other}")
            if other not in found and with_step.exists():
                at, ends = map(int, with_step.read_text().split())
                if at >= step:
                    found[other] = ends
        time.sleep(0.02)
    return found[0]


checkpointer = Checkpointer(every=5, keep=3)
checkpoint = checkpointer.restore()
step, value = (checkpoint.step, checkpoint.state["value"]) if checkpoint else (0, "")
note("pid", rank, os.getpid())
note("on", os.environ["SM_CURRENT_HOST"])
note("restored", step, value)
ends = False
while not ends:
    time.sleep(0.1)
    step += 1
    value = hashlib.sha256(f"{value} {step}".encode()).hexdigest()
    if rank == 0:
        note("begun", step)
    checkpointer.maybe_save(step, {"value": value})
    environment.exit_if_preempted()
    ends = meet(step)
checkpointer.close()
note("result", step, value)
"""


@dataclass
class Storage:
    """An S3 server on the machine of the client, which the hosts reach."""

    pid: int
    environment: dict[str, str]


SERVER = """
import json, os, socket, sys, threading
from cloudtrain.testing import S3Server

address, port, bucket = sys.argv[1], int(sys.argv[2]), sys.argv[3]

def pump(source, target):
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

with S3Server() as server:
    server.create_bucket(bucket)
    inner = int(server.env["AWS_ENDPOINT_URL_S3"].rpartition(":")[2])
    listener = socket.create_server((address, port), backlog=100)
    print(json.dumps([server.pid, {**server.env, "AWS_ENDPOINT_URL_S3": f"http://{address}:{port}"}]), flush=True)
    def serve():
        while True:
            outer, _ = listener.accept()
            try:
                link = socket.create_connection(("127.0.0.1", inner), 30)
            except OSError:
                outer.close()
                continue
            link.settimeout(None)
            for pair in ((outer, link), (link, outer)):
                threading.Thread(target=pump, args=pair, daemon=True).start()
    threading.Thread(target=serve, daemon=True).start()
    sys.stdin.read()
"""


@contextlib.contextmanager
def storage_of(hosts: SshHosts) -> Iterator[Storage]:
    address = f"10.77.0.{len(hosts.machines) + 1}"
    arguments = [sys.executable, "-c", SERVER, address, str(PORT), BUCKET]
    process = subprocess.Popen(
        hosts.client.command(arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin and process.stdout
    try:
        pid, environment = json.loads(process.stdout.readline())
        yield Storage(pid, environment)
    finally:
        process.stdin.close()
        process.wait(60)


@dataclass
class Attack:
    """The faults of one job, and what they hit."""

    hosts: SshHosts
    storage: Storage
    draw: random.Random
    applied: list[str] = field(default_factory=list)

    def apply_one(self) -> None:
        began = time.monotonic()
        name = self.draw.choice(self.hosts.names)
        kinds: dict[str, Callable[[], None]] = {
            f"kill the rank of {name}": lambda: self._signal(name, "train.py", signal.SIGKILL),
            f"kill the runtime of {name}": lambda: self._signal(name, "cloudtrain.runtime", signal.SIGKILL),
            f"pause {name}": lambda: self._pause(name),
            f"unplug {name}": lambda: self._unplug(name),
            "pause the storage": self._pause_storage,
        }
        kind = self.draw.choice([*kinds])
        print(f"{time.strftime('%H:%M:%S')} {kind}", flush=True)
        kinds[kind]()
        self.applied.append(f"{kind} ({time.monotonic() - began:.0f} s)")

    def _pids(self, name: str, program: str) -> list[int]:
        return [pid for pid, command in self.hosts.running(name) if program in command]

    def _signal(self, name: str, program: str, number: int) -> None:
        send(self._pids(name, program), number)

    def _pause(self, name: str) -> None:
        pids = [pid for pid, _ in self.hosts.running(name)]
        try:
            send(pids, signal.SIGSTOP)
            time.sleep(PAUSE_SECONDS)
        finally:
            send(pids, signal.SIGCONT)

    def _unplug(self, name: str) -> None:
        machine = self.hosts.machines[self.hosts.names.index(name)]
        machine.unplug()
        time.sleep(self.draw.uniform(*OUTAGE_SECONDS))
        machine.plug()

    def _pause_storage(self) -> None:
        try:
            send([self.storage.pid], signal.SIGSTOP)
            time.sleep(self.draw.uniform(*OUTAGE_SECONDS))
        finally:
            send([self.storage.pid], signal.SIGCONT)


def send(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
