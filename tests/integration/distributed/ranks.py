"""Runs programs as real ranks: processes on this machine, connected over the loopback interface."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import gpus
import warm_python

from cloudtrain.contract import RankSlot
from cloudtrain.runtime.ports import free_port

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Ended:
    """How one rank ended."""

    returncode: int
    stdout: str
    stderr: str


def run_ranks(
    program: str,
    count: int,
    *arguments: str,
    timeout: float = 120,
    left: int | None = None,
    on_gpus: bool = False,
) -> list[Ended]:
    """Run a program of `PROGRAMS` as ``count`` ranks and wait for it. A single rank gets no launcher's variables."""
    slots = RankSlot.on_host(0, 1, count)
    port = free_port()
    environments = [slot.environment("127.0.0.1", port) for slot in slots] if count > 1 else [{}]
    if on_gpus:
        for rank, environment in enumerate(environments):
            environment.update(gpus.variables(rank, count))
    return run_each(program, environments, *arguments, timeout=timeout, left=left)


def run_each(
    program: str,
    environments: list[dict[str, str]],
    *arguments: str,
    timeout: float = 120,
    left: int | None = None,
) -> list[Ended]:
    """Run a program in each environment at the same time. Processes that run longer than ``timeout`` are killed.

    Args:
        left: the index of a process that is not waited for.
    """
    ours = {name for slot in RankSlot.on_host(0, 1, 1) for name in slot.environment("", 0)}
    base = {name: value for name, value in os.environ.items() if name not in ours}
    command = [str(PROGRAMS / program), *arguments]
    with contextlib.ExitStack() as stack:
        # Files, not pipes: a rank with much output must not block while another rank's output is read.
        outputs = [(_file(stack), _file(stack)) for _ in environments]
        processes = [
            warm_python.start(command, {**base, "OMP_NUM_THREADS": "1", **environment}, out, err)
            for environment, (out, err) in zip(environments, outputs, strict=True)
        ]
        end = time.monotonic() + timeout
        for process in (process for number, process in enumerate(processes) if number != left):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(end - time.monotonic(), 0))
        for process in processes:
            process.kill()
        return [
            Ended(process.wait(), _text(out), _text(err))
            for process, (out, err) in zip(processes, outputs, strict=True)
        ]


def _file(stack: contextlib.ExitStack) -> IO[bytes]:
    return stack.enter_context(tempfile.TemporaryFile())


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def case_names(program: str) -> list[str]:
    """The functions ``case_*`` of a program, without importing it."""
    return re.findall(r"^def case_(\w+)\(", (PROGRAMS / program).read_text(), re.MULTILINE)


Failures = dict[tuple[str, str], list[str]]
"""The errors of each case of each program, one text per rank."""


@functools.cache
def failures(programs: tuple[str, ...], count: int, on_gpus: bool = False) -> Failures:
    """Run the cases of the programs by the same ranks, which takes a third of the time of one launch per program.

    Ranks exit when a case fails. The programs after it are run by others.
    """
    found: Failures = {}
    while programs:
        ended = run_ranks("_all.py", count, *programs, timeout=240, on_gpus=on_gpus)
        errors = [_errors_of_cases(rank) for rank in ended]
        reached = max((programs.index(program) for of_rank in errors for program, _ in of_rank), default=0)
        for program in programs[: reached + 1]:
            for name in case_names(program):
                texts = found.setdefault((program, name), [])
                for rank, of_rank in enumerate(errors):
                    error = of_rank.get((program, name), f"was not run\n{ended[rank].stderr}")
                    if error:
                        texts.append(f"rank {rank}: {error}")
        programs = programs[reached + 1 :]
    return found


def _errors_of_cases(rank: Ended) -> dict[tuple[str, str], str | None]:
    lines = [json.loads(line) for line in rank.stdout.splitlines() if line.startswith("{")]
    return {(line["program"], line["case"]): line["error"] for line in lines}
