"""Where the time of a short job on this machine goes: ``cloudtrain submit train.py``, per process and phase.

    python benchmarks/submit_phases.py [--runs 11] [--quick] [--json]

Follows the system calls that separate the phases, with strace, which stops a process only at these. Prints the time
of each phase since the command began, next to the start of a bare interpreter.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from _common import Report, measure, run_parts

SCRIPT = "import time\nprint('first line', repr(time.time()), flush=True)\n"
CALLS = "execve,vfork,clone,rename,sendmsg,exit_group"
LINE = re.compile(r"(\d+) +(\d+\.\d+) (\w+)\((.*)")
PHASES = (
    ("command", "has read its arguments, and starts the supervisor"),
    ("command", "has validated, packed and rendered the job, and hands it over"),
    ("supervisor", "has loaded its modules, and publishes the job"),
    ("supervisor", "has prepared the folders, and forks the host"),
    ("host", "has fetched the source and planned the ranks, and starts the rank"),
    ("rank", "runs the first line of the script"),
    ("rank", "ends"),
    ("host", "has uploaded the outputs, and ends"),
    ("supervisor", "has written the outcome, and ends"),
    ("command", "has printed the summary, and ends"),
)


class Call(NamedTuple):
    process: str
    time: float
    name: str
    rest: str


def phases(folder: Path) -> list[float]:
    """The seconds since the start of the command for each of `PHASES`. Raises RuntimeError if the job fails."""
    trace = folder / "trace"
    strace = ["strace", "--seccomp-bpf", "-f", "-ttt", "-s", "200", "-e", f"trace={CALLS}", "-o", str(trace)]
    environ = {**os.environ, "CLOUDTRAIN_HOME": str(folder / "state")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    program = Path(sys.executable).with_name("cloudtrain")
    done = subprocess.run(
        [*strace, str(program), "submit", "train.py"],
        cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    first_line = re.search(r"first line ([\d.]+)", done.stdout)
    if done.returncode or not first_line:
        raise RuntimeError(f"{done.stdout}{done.stderr}")
    calls = [
        Call(found[1], float(found[2]), found[3], found[4])
        for line in trace.read_text().splitlines()
        if (found := LINE.match(line))
    ]
    command = calls[0].process
    idle = next(call.process for call in calls if call.name == "execve" and "local.supervisor" in call.rest)
    supervisor, _ = forked(calls, idle)
    host, host_forked = forked(calls, supervisor)
    [rank] = (call for call in calls if call.name == "execve" and "runtime/rank" in call.rest)
    moments = (
        time_of(calls, command, "vfork"), time_of(calls, command, "sendmsg"), time_of(calls, idle, "rename"),
        host_forked, rank.time, float(first_line[1]),
        *(time_of(calls, process, "exit_group") for process in (rank.process, host, supervisor, command)),
    )  # fmt: skip
    return [moment - calls[0].time for moment in moments]


def time_of(calls: list[Call], process: str, name: str) -> float:
    """The time of the first system call ``name`` of a process."""
    return next(call.time for call in calls if (call.process, call.name) == (process, name))


def forked(calls: list[Call], parent: str) -> tuple[str, float]:
    """The first child of ``parent``, and the time when it was forked."""
    call = next(call for call in calls if (call.process, call.name) == (parent, "clone"))
    return call.rest.rpartition(" = ")[2], call.time


def report_phases(report: Report, given: argparse.Namespace) -> None:
    if not shutil.which("strace"):
        sys.exit("there is no strace: apt-get install strace")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(SCRIPT)
        phases(folder)  # fills caches
        found = [phases(folder) for _ in range(given.runs)]
    bare = measure(lambda: subprocess.run([sys.executable, "-I", "-c", "pass"], check=True), given.runs)
    report.add("starts and ends", "a bare interpreter", bare)
    for (process, what), moments in zip(PHASES, zip(*found, strict=True), strict=True):
        report.add(what, process, moments)


if __name__ == "__main__":
    run_parts(__doc__, {"phases": report_phases}, runs=11)
