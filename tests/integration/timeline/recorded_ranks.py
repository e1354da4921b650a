"""Starts recorded ranks, and reads their timelines."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import warm_python

from cloudtrain.contract import RankSlot
from cloudtrain.observe.timeline import Trace
from cloudtrain.runtime.ports import free_port

PROGRAMS = Path(__file__).parent / "programs"
MPIRUN = str(Path(sys.executable).with_name("mpirun"))
_AS_ROOT = {
    f"{library}_ALLOW_RUN_AS_ROOT{word}": "1" for library in ("OMPI", "PRTE") for word in ("", "_CONFIRM")
}
TIMEOUT = 120


def run_two(program: str, *arguments: str) -> list[subprocess.CompletedProcess[str]]:
    """Run a program on two ranks, forked from one interpreter with torch, and return how they ended."""
    port = free_port()
    command = [str(PROGRAMS / program), *arguments]
    with ExitStack() as stack:
        outputs = [(_file(stack), _file(stack)) for _ in range(2)]
        ranks = [
            warm_python.start(
                command, {**os.environ, "OMP_NUM_THREADS": "1", **slot.environment("127.0.0.1", port)}, *files
            )
            for slot, files in zip(RankSlot.on_host(0, 1, 2), outputs, strict=True)
        ]
        try:
            codes = [rank.wait(TIMEOUT) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        return [
            subprocess.CompletedProcess(command, code, *map(_text, files))
            for code, files in zip(codes, outputs, strict=True)
        ]


def _file(stack: ExitStack) -> IO[str]:
    return stack.enter_context(tempfile.TemporaryFile("w+"))


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def mpirun_two(program: str, **environment: str) -> None:
    options = ["--oversubscribe", "--bind-to", "none", "--mca", "btl_tcp_if_include", "lo"]
    subprocess.run(
        [MPIRUN, "-np", "2", *options, sys.executable, str(PROGRAMS / program)],
        env={**os.environ, **_AS_ROOT, **environment},
        check=True,
        timeout=TIMEOUT,
    )


def lanes(trace: Trace) -> dict[str, list[dict[str, Any]]]:
    """Return the spans of each lane by time, with enclosing spans before enclosed ones."""
    names = {e["tid"]: e["args"]["name"] for e in trace.events if e["name"] == "thread_name"}
    spans = defaultdict(list)
    for event in trace.events:
        if event["ph"] == "X":
            spans[names[event["tid"]]].append(event)
    for lane in spans.values():
        lane.sort(key=lambda span: (span["ts"], -span["dur"]))
    return spans


def check_nesting(trace: Trace) -> None:
    """Assert that spans in a lane are either nested or disjoint."""
    for name, spans in lanes(trace).items():
        ends: list[float] = []
        for span in spans:
            ended = span["ts"] + span["dur"]
            while ends and ends[-1] <= span["ts"] + 1e-4:
                ends.pop()
            assert span["dur"] >= 0
            assert not ends or ended <= ends[-1] + 1e-4, f"{name}: {span} ends after what it is in"
            ends.append(ended)
