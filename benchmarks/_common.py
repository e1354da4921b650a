"""Shared by all benchmarks: timings, ratios, rows of a Markdown table, environments of the peers.

Only ratios of measurements from the same run are meaningful: machines and their load differ.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Name = TypeVar("Name")

TESTS = Path(__file__).parents[1] / "tests"
TEST_FOLDERS = [str(TESTS), *map(str, sorted(TESTS.glob("integration/*/")))]
"""The folders of the modules that the tests share, for ``sys.path``: real clusters, servers and hosts."""
PEERS = Path.home() / ".cache" / "cloudtrain-bench"


@dataclass(frozen=True)
class Timing:
    """Seconds of several runs of one contestant."""

    median: float
    min: float
    max: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Timing:
        seconds = list(seconds)
        return cls(statistics.median(seconds), min(seconds), max(seconds))

    def __str__(self) -> str:
        scale, unit = (1, "s") if self.median >= 0.01 else (1e3, "ms")
        return f"{self.median * scale:.3f} {unit} ({self.min * scale:.3f} to {self.max * scale:.3f})"


def measure(function: Callable[[], object], runs: int) -> Timing:
    """Wall-clock time of ``function``, called ``runs`` times."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return Timing.of(seconds)


def cpu_seconds(command: Sequence[str], runs: int, env: Mapping[str, str] | None = None) -> Timing:
    """CPU time, user and system, of a child process and of the descendants that it waited for.

    Discards its output. Raises CalledProcessError if it fails.
    """
    seconds = []
    for _ in range(runs):
        child = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise subprocess.CalledProcessError(child.returncode, command)
        seconds.append(usage.ru_utime + usage.ru_stime)
    return Timing.of(seconds)


def in_turns(contestants: Mapping[Name, Callable[[], float]], runs: int) -> dict[Name, Timing]:
    """Seconds of each contestant, which it returns itself, over ``runs`` rounds in which each has one turn.

    Other load on the machine thus affects all of them. An additional first round fills caches and is not counted.
    """
    seconds: dict[Name, list[float]] = {name: [] for name in contestants}
    for turn in range(runs + 1):
        for name, run in contestants.items():
            took = run()
            if turn:
                seconds[name].append(took)
    return {name: Timing.of(took) for name, took in seconds.items()}


def resident(what: str) -> int:
    """Bytes of memory of this process: ``VmRSS``, or ``VmHWM`` since 5 was last written to ``clear_refs`` (proc(5))."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [kilobytes] = [line.split()[1] for line in lines if line.startswith(f"{what}:")]
    return int(kilobytes) << 10


def peer_python(name: str, requirements: Sequence[str]) -> Path:
    """The interpreter of a virtual environment with ``requirements``, created once and cached in `PEERS`.

    It is created again if the requirements change or the last attempt was interrupted.
    """
    folder = PEERS / name
    python = folder / "bin" / "python"
    mark = folder / "requirements.txt"
    wanted = "\n".join(requirements) + "\n"
    if mark.is_file() and mark.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    print(f"installing {', '.join(requirements)} into {folder}", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *requirements], check=True)
    mark.write_text(wanted)
    return python


def header() -> str:
    """The first two lines of the table that `row` continues."""
    return (
        "| what | cloudtrain, median (min to max) | peer, median (min to max) | peer / cloudtrain |\n"
        "| --- | --- | --- | --- |"
    )


def row(what: str, ours: Timing, peer_name: str, peer: Timing) -> str:
    """One row of the table. The last column is the ratio of the medians: how many times more the peer needs."""
    return f"| {what} | {ours} | {peer_name}: {peer} | {peer.median / ours.median:.2f} |"
