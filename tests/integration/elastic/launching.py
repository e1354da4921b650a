"""Starts ``programs/elastic_training.py``, and reads what its ranks have recorded."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import warm_python

TESTS = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "programs" / "elastic_training.py"
TORCHRUN = ("-m", "torch.distributed.run", "--max-restarts=3", "--monitor-interval=0.1")


def torchrun(folder: Path, *options: str, timeout: float = 120) -> None:
    """Train with two ranks under one agent, and wait for the successful end."""
    command = [*TORCHRUN, "--standalone", "--nproc-per-node=2", str(PROGRAM), str(folder), *options]
    with started(Command(command), folder=folder) as [agent]:
        assert agent.wait(timeout) == 0, (folder / "output-0").read_text()


@dataclass(frozen=True)
class Command:
    """A program of Python: a file or ``-m`` and a module, and its arguments."""

    words: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)


def environment(folder: Path) -> dict[str, str]:
    """The environment of a launch whose files are all in ``folder``."""
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder), "PYTHONPATH": path}


@contextlib.contextmanager
def started(*commands: Command, folder: Path) -> Iterator[list[warm_python.Program]]:
    """Start programs, each with its output in a file; those still running at the end are killed."""
    with contextlib.ExitStack() as stack:
        processes = []
        for number, command in enumerate(commands):
            output = stack.enter_context((folder / f"output-{number}").open("w"))
            variables = {**environment(folder), **command.variables}
            process = warm_python.start(command.words, variables, output, output)
            stack.callback(kill_all, process)
            processes.append(process)
        yield processes


def kill_all(process: warm_python.Program) -> None:
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


def wait_for(condition: Callable[[], object], timeout: float = 240) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.05)
