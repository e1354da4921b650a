"""Starts ``programs/elastic_training.py``, and reads what its ranks have recorded."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "programs" / "elastic_training.py"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--max-restarts=3", "--monitor-interval=0.1")


def torchrun(folder: Path, *options: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Train with two ranks under one agent, and wait for the end."""
    command = [*TORCHRUN, "--standalone", "--nproc-per-node=2", str(PROGRAM), str(folder), *options]
    return subprocess.run(command, env=environment(folder), capture_output=True, text=True, timeout=timeout)


def environment(folder: Path) -> dict[str, str]:
    """The environment of a launch whose files are all in ``folder``."""
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder), "PYTHONPATH": path}


@contextlib.contextmanager
def started(*commands: list[str], folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Start programs, each with its output in a file; those still running at the end are killed."""
    with contextlib.ExitStack() as stack:
        processes = []
        for number, command in enumerate(commands):
            output = stack.enter_context((folder / f"output-{number}").open("w"))
            process = subprocess.Popen(
                command, env=environment(folder), stdout=output, stderr=subprocess.STDOUT, text=True
            )
            stack.callback(kill_all, process)
            processes.append(process)
        yield processes


def kill_all(process: subprocess.Popen[str]) -> None:
    """Kill -9 a program and its children."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    pids = children.read_text().split() if children.exists() else []
    process.kill()
    process.wait()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


@dataclass(frozen=True)
class Step:
    """One step of all ranks."""

    number: int
    loss: float
    world: int
    indices: list[int]
    """Of all ranks' batches together."""


def history(folder: Path) -> list[list[Step]]:
    """The steps of each call of the function. A step counts only if every rank has completed it."""
    lines = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    lines.sort(key=lambda line: (line["entered"], line["step"]))
    attempts = []
    for _, attempt in itertools.groupby(lines, lambda line: line["entered"]):
        steps = []
        for number, group in itertools.groupby(attempt, lambda line: line["step"]):
            ranks = list(group)
            if len(ranks) == ranks[0]["world"]:
                indices = [index for rank in ranks for index in rank["indices"]]
                steps.append(Step(number, ranks[0]["loss"], ranks[0]["world"], indices))
        attempts.append(steps)
    return attempts


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def wait_for(condition: Callable[[], object], timeout: float = 60) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.05)
