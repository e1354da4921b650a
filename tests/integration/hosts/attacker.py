"""Machines on the network of a job that do not belong to it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from host_network import Machine, Program

import cloudtrain

ENVIRONMENT = {"PATH": os.defpath, "PYTHONPATH": str(Path(cloudtrain.__file__).parents[1])}
FOLDER = Path(__file__).parent


@contextmanager
def attack(machine: Machine, folder: Path, program: str, *arguments: str) -> Iterator[Path]:
    """A program of this folder that runs on a machine; yields the file with its output."""
    log = folder / f"{program}-{machine.name}.txt"
    command: Sequence[str] = [sys.executable, str(FOLDER / program), *arguments]
    with log.open("wb") as output:
        running = machine.start(command, cwd=folder, env=ENVIRONMENT, output=output)
    try:
        yield log
    finally:
        running.kill()


def connections(log: Path) -> int:
    """How many connections a crowd has made."""
    return max(map(int, re.findall(r"connections: (\d+)", log.read_text())), default=0)


def peak_memory(program: Program) -> int:
    """The peak of the memory of a running program's process 1, in MiB."""
    status = Path(f"/proc/{program.first_process}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) >> 10
