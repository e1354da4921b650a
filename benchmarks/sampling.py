"""Measures what the sampling of a host costs: the processor time of the sampler, and the steps of a rank meanwhile.

    python benchmarks/sampling.py [share] [step] [data] [--runs 3] [--quick] [--json]

- ``share``: the processor time of a process that only samples, as a share of a processor: of this machine, of 8 ranks
  that have started 4 processes each, and of two GPUs of a library in place of NVIDIA's. Its start is not counted.
- ``step``: the median of a training step (matrix products on one thread) on a machine that is sampled, and that is not.
  Both take turns of 3 s, in which the process that samples runs, or is stopped.
- ``data``: the processor time of `loading_data` in each step of 10 ms: as much as that of a ``DataLoader``.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from _common import OURS, TEST_FOLDERS, Report, run_parts

from cloudtrain.contract import RankSlot
from cloudtrain.observe import EventLog, heartbeat
from cloudtrain.observe.data_wait import loading_data
from cloudtrain.runtime.run_folder import RankRecord
from cloudtrain.runtime.sampling.sampler import Sampler

RANKS, PROCESSES = 8, 4
WARM_UP = 3.0
"""Seconds after which the sampler and its threads have started."""

SAMPLER = "sample"
"""The argument with which this program is the process that samples."""


def share(report: Report, given: argparse.Namespace) -> None:
    seconds = 5.0 if given.quick else 60.0
    with tempfile.TemporaryDirectory() as folder, _ranks(Path(folder)):
        values = [float(_sampler(Path(folder), seconds).communicate()[0]) for _ in range(given.runs)]
    report.add("sampling a host with 8 ranks", OURS, values, "% of a processor")


def step(report: Report, given: argparse.Namespace) -> None:
    turns = 1 if given.quick else 10 * given.runs
    medians: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as folder, _ranks(Path(folder)):
        process = _sampler(Path(folder), 1e6)
        time.sleep(WARM_UP)
        try:
            for _ in range(turns):
                for is_sampled in (True, False):
                    process.send_signal(signal.SIGCONT if is_sampled else signal.SIGSTOP)
                    medians[is_sampled].append(_step_seconds(3.0))
        finally:
            process.kill()
            process.communicate()
    report.add("training step on a host that is sampled", OURS, medians[True])
    report.add("training step on a host that is sampled", "without sampling", medians[False])


def data(report: Report, given: argparse.Namespace) -> None:
    count = 50 if given.quick else 500
    with tempfile.TemporaryDirectory() as folder:
        os.environ[heartbeat.VARIABLE] = f"{folder}/heartbeat"
        heartbeat.create(f"{folder}/heartbeat")
        values = [_waits_seconds(count) for _ in range(given.runs)]
    report.add(
        "reporting a wait for data in a step of 10 ms",
        OURS,
        [1e4 * value for value in values],
        "% of the step",
    )


def _waits_seconds(count: int) -> float:
    """The CPU seconds of this thread for one wait."""
    used = 0.0
    for _ in range(count):
        time.sleep(0.01)
        began = time.thread_time()
        with loading_data():
            pass
        used += time.thread_time() - began
    return used / count


def _step_seconds(seconds: float) -> float:
    import numpy

    matrix = numpy.random.default_rng(0).random((400, 400))
    took = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        for _ in range(3):
            matrix @ matrix
        took.append(time.perf_counter() - began)
    return statistics.median(took)


@contextmanager
def _ranks(folder: Path) -> Iterator[None]:
    """Run processes that do nothing, and create a library that replaces NVIDIA's."""
    sys.path.extend(TEST_FOLDERS)
    from nvml import compile_stand_in

    compile_stand_in(folder)
    code = " & ".join(["sleep 600"] * PROCESSES) + " & wait"
    started = [
        subprocess.Popen(["/bin/sh", "-c", code], start_new_session=True, stdout=subprocess.DEVNULL)
        for _ in range(RANKS)
    ]
    try:
        for local, process in enumerate(started):
            RankRecord(pid=process.pid, rank=local).write(str(folder), local)
        yield
    finally:
        for process in started:
            os.killpg(process.pid, 9)
            process.wait()


def _sampler(folder: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, SAMPLER, str(folder), str(seconds)]
    environ = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)


def _sample(folder: Path, seconds: float) -> None:
    """Print the CPU time of a sampler's threads, as a percentage of the elapsed time."""
    sampler = Sampler(EventLog(folder / "events.jsonl", "algo-1"), folder, 1, os.environ)
    sampler.watch(str(folder), RankSlot.on_host(0, 1, RANKS))
    time.sleep(WARM_UP)
    used, began = time.process_time(), time.monotonic()
    time.sleep(seconds)
    print(100 * (time.process_time() - used) / (time.monotonic() - began))
    sampler.close()


if __name__ == "__main__":
    if sys.argv[1:2] == [SAMPLER]:
        _sample(Path(sys.argv[2]), float(sys.argv[3]))
    else:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        run_parts(__doc__, {"share": share, "step": step, "data": data}, runs=3)
