"""Measures what a look at jobs costs: `describe` of a job with a million metrics, `list` of ten thousand jobs.

    python benchmarks/many_jobs.py [--runs 7] [--quick]

The jobs have ended; their folders are made here. The first look reads everything once. Prints rows of a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

from _common import Timing, measure

LOOK = """
import resource, sys, time
from cloudtrain.platforms import get_platform
platform = get_platform("local")
began = time.perf_counter()
platform.describe(sys.argv[1])
print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="fewer metrics and jobs, as a smoke test")
    arguments = parser.parse_args()
    runs, metrics, jobs = (1, 10_000, 100) if arguments.quick else (arguments.runs, 1_000_000, 10_000)
    print("| what | median (min to max) | memory |\n| --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "CLOUDTRAIN_HOME": home}
        jobs_home = Path(home, "jobs", "local")
        make_job(jobs_home / "large", 0)
        with open(jobs_home / "large" / "events.jsonl", "w") as file:
            for number in range(metrics):
                event = {
                    "time": 1_700_000_000.5 + number,
                    "source": "algo-1",
                    "event": "metric",
                    "name": "loss",
                    "value": 1 / (1 + number),
                    "rank": 0,
                }
                file.write(json.dumps(event) + "\n")
        for what, times in (("first", 1), ("next", runs)):
            looks = [_look(environment) for _ in range(times)]
            timing, memory = Timing.of(took for took, _ in looks), max(size for _, size in looks)
            print(f"| `describe`, {metrics:,} metrics, {what} look | {timing} | {memory} MB |", flush=True)
        for number in range(jobs):
            make_job(jobs_home / f"job-{number}", number)
        with sqlite3.connect(Path(home, "index.db")) as database:
            database.execute(
                "CREATE TABLE jobs (name TEXT, platform TEXT, submitted_at REAL, PRIMARY KEY (name, platform))"
            )
            rows = [(f"job-{number}", "local", float(number)) for number in range(jobs)]
            database.executemany("INSERT INTO jobs VALUES (?, ?, ?)", rows)
        command = [sys.executable, "-m", "cloudtrain", "list", "-n", str(jobs)]

        def list_jobs() -> None:
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)

        for what, times in (("first", 1), ("next", runs)):
            timing = measure(list_jobs, times)
            memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
            print(f"| `cloudtrain list`, {jobs:,} jobs, {what} look | {timing} | {memory} MB |", flush=True)


def make_job(folder: Path, number: int) -> None:
    folder.mkdir(parents=True)
    request = {"settings": {}, "channels": {}, "environment": {}, "hyperparameters": {"lr": "0.1"}}
    record = {
        "status": "Completed",
        "submitted_at": number,
        "started_at": number,
        "ended_at": number + 1,
        "exit_code": 0,
    }
    (folder / "request.json").write_text(json.dumps(request))
    (folder / "state.json").write_text(json.dumps({**record, "failure": None}))
    phases = (
        {"time": number, "source": "a", "event": "phase", "phase": "train", "state": state, "seconds": 1}
        for state in ("began", "ended")
    )
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(phase)}\n" for phase in phases))


def _look(environment: dict[str, str]) -> tuple[float, int]:
    """Seconds of one `describe` in a new process, and the most memory of that process in MB."""
    done = subprocess.run(
        [sys.executable, "-c", LOOK, "large"], env=environment, stdout=subprocess.PIPE, check=True
    )
    seconds, memory = done.stdout.split()
    return float(seconds), int(memory)


if __name__ == "__main__":
    main()
