"""Faults of a job: kills, pauses, outages of its storage, a full disk, steps of the clock, stops and preemptions."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fault_proxy import Fault, FaultProxy, no_fault
from weather_training import Journal

from cloudtrain import Job
from cloudtrain.errors import CloudtrainError
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.testing import S3Server

LONGEST_PAUSE = 15.0
LONGEST_OUTAGE = 20.0
LONGEST_FULL_DISK = 4.0


@dataclass
class Surroundings:
    """Where the jobs of a lane run."""

    folder: Path
    disk: Path
    """A small file system, which holds the jobs."""
    clock: Path
    """The file with the seconds by which the clock is wrong."""
    server: S3Server
    proxy: FaultProxy


@dataclass
class Victim:
    """A running job."""

    job: Job
    journal: Path
    around: Surroundings
    ends: frozenset[str] = frozenset({"Completed"})
    """The statuses that are right, after all that has happened."""

    def pids(self, who: str) -> list[int]:
        """The processes of ``who``, as far as they live."""
        folder = JobFolder.of("local", self.job.name)
        kind, _, number = who.partition(" ")
        found: list[int | None] = []
        if kind in ("supervisor", "everything"):
            found.append(folder.read_record().pid)
        if kind in ("host", "everything"):
            events: list[dict[str, Any]] = []
            with contextlib.suppress(CloudtrainError):
                events = [
                    event for event in self.job.platform.events(self.job.name) if event["event"] == "host"
                ]  # type: ignore[attr-defined]
            pids = {event["source"]: event["pid"] for event in events}
            found += [pid for host, pid in pids.items() if not number or host == f"algo-{number}"]
        if kind in ("rank", "everything"):
            pids = Journal.read(self.journal).pids
            found += [pid for rank, pid in pids.items() if not number or rank == int(number)]
        mark = str(folder.path).encode()
        return [pid for pid in found if pid and belongs(pid, mark)]


def belongs(pid: int, mark: bytes) -> bool:
    """Whether a process has ``mark`` in its environment or its arguments, works there, or has a file open there.

    Process ids are reused. A supervisor and the runtimes of a local job are forks of a process that was started before
    the job existed: their open files and their folder show which job they belong to.
    """
    process = Path(f"/proc/{pid}")
    with contextlib.suppress(OSError):
        if mark in (process / "environ").read_bytes() or mark in (process / "cmdline").read_bytes():
            return True
    with contextlib.suppress(OSError):
        for link in (process / "cwd", *(process / "fd").iterdir()):
            with contextlib.suppress(OSError):  # closed in the meantime
                if mark in os.readlink(bytes(link)):
                    return True
    return False


def processes_of(mark: bytes) -> list[int]:
    """The processes to which `belongs` applies."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if belongs(pid, mark)]


def command_of(pid: int) -> str:
    """The command line of a process; empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def kill(victim: Victim, who: str) -> None:
    for pid in victim.pids(who):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            if who == "supervisor":
                victim.ends |= {"Failed"}


def pause(victim: Victim, who: str, seconds: float) -> None:
    pids = victim.pids(who)
    try:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
    finally:
        for pid in reversed(pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def take_storage_away(around: Surroundings, how: str, seconds: float) -> None:
    if how == "killed":
        os.kill(around.server.pid, signal.SIGKILL)
        time.sleep(seconds)
        around.server.stop()
        around.server.start()
        around.proxy.upstream = around.server.env["AWS_ENDPOINT_URL_S3"]
        return
    fault = {"stalls": Fault.STALL, "503": Fault.UNAVAILABLE, "cut": Fault.CUT_REQUEST}[how]
    around.proxy.choose = lambda method: fault
    time.sleep(seconds)
    around.proxy.choose = no_fault


def fill_disk(around: Surroundings, seconds: float) -> None:
    with _filler(around.disk):
        time.sleep(seconds)


@contextlib.contextmanager
def _filler(disk: Path) -> Iterator[None]:
    path = disk / "filler"
    try:
        with open(path, "wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))
        yield
    finally:
        path.unlink()


def step_clock(victim: Victim, seconds: int) -> None:
    before = float(victim.around.clock.read_text()) if victim.around.clock.exists() else 0.0
    temporary = victim.around.clock.with_suffix(".new")
    temporary.write_text(str(before + seconds))
    temporary.replace(victim.around.clock)


def stop(victim: Victim) -> None:
    victim.ends |= {"Stopped"}
    with contextlib.suppress(CloudtrainError):  # it has ended meanwhile
        victim.job.stop()


def preempt(victim: Victim) -> None:
    with contextlib.suppress(CloudtrainError):
        victim.job.preempt()


RANKS = ("rank 0", "rank 1")
HOSTS = ("host 1", "host 2")


def draw_fault(draw: random.Random) -> tuple[str, Callable[[Victim], None]]:
    """A fault, with its name in the summary."""
    who = draw.choice((*RANKS, *HOSTS))
    kinds: dict[str, tuple[int, Callable[[Victim], None]]] = {
        f"kill {who[:4]}": (6, lambda victim: kill(victim, who)),
        "kill supervisor": (1, lambda victim: kill(victim, "supervisor")),
        "stop": (1, stop),
        "preempt": (3, preempt),
    }
    paused = draw.choice((*RANKS, *HOSTS, "supervisor", "everything"))
    pause_seconds = draw.uniform(0.5, LONGEST_PAUSE)
    kinds[f"pause {paused.split()[0]}"] = (5, lambda victim: pause(victim, paused, pause_seconds))
    how = draw.choice(("stalls", "503", "cut", "killed"))
    outage = draw.uniform(0.3, LONGEST_OUTAGE)
    kinds[f"storage {how}"] = (5, lambda victim: take_storage_away(victim.around, how, outage))
    full = draw.uniform(0.3, LONGEST_FULL_DISK)
    kinds["disk full"] = (3, lambda victim: fill_disk(victim.around, full))
    clock = draw.choice((-86400, -60, 60, 86400))
    kinds["clock"] = (2, lambda victim: step_clock(victim, clock))
    [name] = draw.choices(list(kinds), [weight for weight, _ in kinds.values()])
    return name, kinds[name][1]
