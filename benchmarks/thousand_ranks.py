"""Measures a job of a thousand ranks on one machine: 64 hosts with 16 ranks each, of a shell script that does nothing.

    python benchmarks/thousand_ranks.py [--hosts 64] [--ranks 16] [--quick]

Three jobs: in the first, every rank prints 1,000 lines and ends; in the second, one rank fails; the third is stopped.
Prints rows of a Markdown table. Memory is that of the supervisor and the runtimes, without their ranks: the sum of
proportional shares (Pss, proc(5)). It takes some minutes of two cores, and 4 GB of memory.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cloudtrain import Estimator, Job
from cloudtrain.contract import JobStatus

SCRIPT = """#!/bin/sh
echo ready
read line < "$1/go"
mode=$(cat "$1/mode")
[ "$mode" = lines ] && exec seq -f "line %g" 1000
[ "$mode" = fail ] && [ "$RANK" = "$2" ] && exit 3
read line < "$1/never"
"""
LINES = 1000
IDLE_SECONDS = 5.0
PATIENCE = 300.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--ranks", type=int, default=16, help="on each host")
    parser.add_argument("--quick", action="store_true", help="2 hosts with 2 ranks, as a smoke test")
    arguments = parser.parse_args()
    hosts, ranks = (2, 2) if arguments.quick else (arguments.hosts, arguments.ranks)
    print(f"| {hosts} hosts x {ranks} ranks | |\n| --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CLOUDTRAIN_HOME"] = f"{folder}/home"
        Path(folder, "source").mkdir()
        Path(folder, "source", "train.sh").write_text(SCRIPT)
        for name in ("go", "never"):
            os.mkfifo(f"{folder}/{name}")
        _lines(folder, hosts, ranks)
        _failure(folder, hosts, ranks)
        _stop(folder, hosts, ranks)


def _lines(folder: str, hosts: int, ranks: int) -> None:
    job, took = _start(folder, hosts, ranks)
    _row("submit until every rank runs", f"{took:.1f} s")
    processes = _descendants(job)
    used, began = _cpu(processes), time.perf_counter()
    time.sleep(IDLE_SECONDS)
    share = (_cpu(processes) - used) / (time.perf_counter() - began)
    _row("CPU of supervisor and runtimes while the ranks wait", f"{share:.2f} cores")
    _row("their memory", f"{_memory(processes) >> 20} MB")
    threads = max(len(os.listdir(f"/proc/{pid}/task")) for pid in processes)
    descriptors = max(len(os.listdir(f"/proc/{pid}/fd")) for pid in processes)
    _row("threads, open descriptors of one of them", f"{threads}, {descriptors}")
    began = time.perf_counter()
    _go(folder, "lines")
    expected = hosts * ranks * LINES
    _until(lambda: job.status.is_final)
    took = time.perf_counter() - began
    whole = sum(
        line.startswith(b"[rank ") and b"] line " in line for line in _log(job).read_bytes().splitlines()
    )
    _row(f"{expected:,} lines merged, and the end of all ranks", f"{took:.1f} s, {whole:,} lines whole")
    assert job.status == JobStatus.COMPLETED, job.failure


def _failure(folder: str, hosts: int, ranks: int) -> None:
    job, _ = _start(folder, hosts, ranks)
    began = time.perf_counter()
    _go(folder, "fail")
    _until(lambda: job.status.is_final)
    failure = job.failure
    right = failure is not None and (failure.rank, failure.exit_code) == (hosts * ranks // 2, 3)
    _row(
        "one rank fails, until the job has ended",
        f"{time.perf_counter() - began:.1f} s, rank blamed rightly: {right}",
    )


def _stop(folder: str, hosts: int, ranks: int) -> None:
    job, _ = _start(folder, hosts, ranks)
    began = time.perf_counter()
    job.stop()
    _until(lambda: job.status.is_final)
    _row("stop, until the job has ended", f"{time.perf_counter() - began:.1f} s, {job.status}")


def _start(folder: str, hosts: int, ranks: int) -> tuple[Job, float]:
    """A job whose ranks all run, and the seconds from its submission until then."""
    began = time.perf_counter()
    job = Estimator(
        "train.sh",
        source_dir=f"{folder}/source",
        instance_count=hosts,
        distribution={"processes": {"processes_per_host": ranks}},
        arguments=[folder, str(hosts * ranks // 2)],
    ).fit(wait=False)
    log = _log(job)
    _until(lambda: job.status.is_final or log.read_bytes().count(b"] ready\n") == hosts * ranks)
    assert not job.status.is_final, job.failure
    return job, time.perf_counter() - began


def _go(folder: str, mode: str) -> None:
    """Have all ranks go on: they read the end of the pipe."""
    Path(folder, "mode").write_text(mode)
    os.close(os.open(f"{folder}/go", os.O_WRONLY))


def _log(job: Job) -> Path:
    return Path(job.describe().place, "job.log")


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)


def _descendants(job: Job) -> list[int]:
    """The supervisor and the runtimes, which are its children."""
    import json

    supervisor = int(json.loads(Path(job.describe().place, "state.json").read_text())["pid"])
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    return [supervisor, *map(int, children)]


def _cpu(processes: list[int]) -> float:
    """Seconds of CPU that the processes have used."""
    fields = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in processes)
    return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


def _memory(processes: list[int]) -> int:
    texts = (Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() for pid in processes)
    return sum(int(line.split()[1]) << 10 for text in texts for line in text if line.startswith("Pss:"))


def _row(what: str, result: str) -> None:
    print(f"| {what} | {result} |", flush=True)


if __name__ == "__main__":
    main()
