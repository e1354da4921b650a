"""Counts the calls of the scheduler's commands while ten processes watch a thousand jobs on a real Slurm.

    python benchmarks/slurm_watch.py [--seconds 120] [--quick]

Each process describes its hundred jobs and reads their states again and again, as `cloudtrain wait` does. Then all jobs
are cancelled, and each process sees how they ended. Prints rows of a Markdown table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from _common import TEST_FOLDERS

sys.path += TEST_FOLDERS

from slurm_cluster import Configuration, SlurmCluster
from slurm_programs import program

COMMANDS = ("squeue", "sacct", "scontrol", "scancel")
PROCESSES = 10
WATCH = """
import sys, time
from cloudtrain.platforms import get_platform

platform, names = get_platform("slurm"), sys.argv[1:]
looks, seen = 0, set()
while len(seen) < len(names):
    for name in names:
        if name not in seen and platform.describe(name).status.is_final:
            seen.add(name)
        platform.states(name)
        looks += 1
    time.sleep(0.5)
print(looks, len({platform.describe(name).reason for name in names}))
"""


@dataclass(frozen=True)
class Watched:
    """The calls while a number of jobs was watched, in seconds since the start, and after all of them had ended."""

    seconds: float
    calls: Mapping[str, Sequence[float]]
    looks: int
    """Descriptions of a job, all processes together."""
    calls_at_end: Mapping[str, int]

    @property
    def most_in_ten_seconds(self) -> int:
        times = sorted(itertools.chain.from_iterable(self.calls.values()))
        return max((sum(start <= time < start + 10 for time in times) for start in times), default=0)

    @property
    def count(self) -> int:
        return sum(map(len, self.calls.values()))


def watch(jobs: int, seconds: float) -> Watched:
    """Submit ``jobs`` jobs to a Slurm of two nodes, watch them for some seconds, cancel them, and count the calls."""
    with (
        SlurmCluster(Configuration(cpus=4, name="watched")) as slurm,
        tempfile.TemporaryDirectory() as folder,
    ):
        home, calls = Path(folder, "home"), Path(folder, "calls")
        environ = {**slurm.env, "CLOUDTRAIN_HOME": str(home)}
        environ["PATH"] = f"{_counting(Path(folder, 'bin'), calls)}:{environ['PATH']}"

        def submit(number: int) -> str:
            name = f"watched-{number}"
            _make_job(home / "jobs" / "slurm" / name, slurm.submit("exec sleep 3600"))
            return name

        with ThreadPoolExecutor(8) as pool:
            names = list(pool.map(submit, range(jobs)))
        watchers = [
            subprocess.Popen(
                [sys.executable, "-c", WATCH, *names[start::PROCESSES]], env=environ, stdout=subprocess.PIPE
            )
            for start in range(PROCESSES)
        ]
        began = time.time()
        time.sleep(seconds)
        during = {name: [at - began for at in times] for name, times in _times(calls).items()}
        slurm("scancel", "--user", str(os.getuid()))
        looks = 0
        for watcher in watchers:
            out, _ = watcher.communicate(timeout=300)
            looks += int(out.split()[0])
        at_end = {name: len(times) - len(during[name]) for name, times in _times(calls).items()}
    return Watched(seconds, during, looks, at_end)


def _make_job(folder: Path, number: int) -> None:
    """The folder of a job in the queue, as a submission leaves it."""
    folder.mkdir(parents=True)
    now = time.time()
    request = {"settings": {}, "channels": {}, "environment": {}, "hyperparameters": {}}
    submission = {"number": str(number), "cluster": "", "time": now, "attempt": 0}
    (folder / "request.json").write_text(json.dumps(request))
    (folder / "batch.json").write_text(json.dumps({"submissions": [submission]}))
    (folder / "state.json").write_text(json.dumps({"status": "Pending", "submitted_at": now}))


def _counting(folder: Path, calls: Path) -> Path:
    """Programs in front of Slurm's commands that write down when they were called."""
    folder.mkdir()
    for name in COMMANDS:
        path = folder / name
        path.write_text(f'#!/bin/sh\necho "{name} $(date +%s.%N)" >> {calls}\nexec {program(name)} "$@"\n')
        path.chmod(0o755)
    return folder


def _times(calls: Path) -> dict[str, list[float]]:
    lines = calls.read_text().splitlines() if calls.exists() else []
    return {name: [float(line.split()[1]) for line in lines if line.split()[0] == name] for name in COMMANDS}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--quick", action="store_true", help="fewer jobs and seconds, as a smoke test")
    arguments = parser.parse_args()
    jobs, seconds = (50, 25.0) if arguments.quick else (1000, arguments.seconds)
    found = watch(jobs, seconds)
    by_name = ", ".join(f"{len(times)} {name}" for name, times in found.calls.items() if times)
    at_end = ", ".join(f"{count} {name}" for name, count in found.calls_at_end.items() if count)
    print("| jobs | processes | seconds | descriptions | calls | most calls in 10 s | calls after the end |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print(
        f"| {jobs:,} | {PROCESSES} | {found.seconds:g} | {found.looks:,} | {by_name} | {found.most_in_ten_seconds} "
        f"| {at_end} |"
    )


if __name__ == "__main__":
    main()
