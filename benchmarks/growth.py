"""How costs grow: of everyday commands with the number of jobs, of looks at many jobs, of a job with its ranks.

    python benchmarks/growth.py [jobs] [looks] [ranks] [--runs 5] [--plot FILE.svg] [--quick] [--json]

- ``jobs``: CPU seconds of one process per command, with 10, 1,000 and 100,000 jobs on this machine, which have ended:
  the lowest of the runs counts, because other load only adds to it. ``submit`` includes all processes of its job.
- ``looks``: wall-clock seconds of `describe` of a job with a million metrics, and of `list`, `list --where` and
  `export` of ten thousand jobs. The first look reads all events once, and keeps a summary.
- ``ranks``: jobs of 8 to 1,024 ranks of a shell script that does nothing, 16 on a host, all on this machine: the start,
  what the supervisor and the runtimes of the hosts cost while the ranks wait (memory: the sum of proportional shares,
  Pss, proc(5)), the merging of 1,000 lines of each rank, the failure of one rank, and a stop. And the CPU time of the
  coordinator in rank 0 for one operation of as many ranks, as in `negotiation.py`. Takes minutes, and 4 GB of memory.

``--plot`` draws the figures of ``jobs``, or of ``ranks``; it needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import negotiation
from _common import OURS, REPOSITORY, Report, in_turns, measure, run_parts
from regression import CLOUDTRAIN, adopt_orphans, cpu_of_all

from cloudtrain import Estimator, Job
from cloudtrain.contract import JobStatus
from cloudtrain.index import insert, set_parameters
from cloudtrain.index.schema import migrate
from cloudtrain.observe import steady
from cloudtrain.runtime.supervisor.record import JobRecord

COMMANDS: Mapping[str, Sequence[str]] = {
    "cloudtrain --help": ("--help",),
    "cloudtrain list": ("list",),
    "cloudtrain describe job-5": ("describe", "job-5"),
    "cloudtrain logs job-5": ("logs", "job-5"),
    "cloudtrain wait job-5": ("wait", "job-5"),
    "cloudtrain submit train.py": ("submit", "train.py"),
}
LOOK = """
import resource, sys, time
from cloudtrain.platforms import get_platform
platform = get_platform("local")
began = time.perf_counter()
platform.describe(sys.argv[1])
print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
"""
RANK_SCRIPT = """#!/bin/sh
echo ready
read line < "$1/go"
mode=$(cat "$1/mode")
[ "$mode" = lines ] && exec seq -f "line %g" 1000
[ "$mode" = fail ] && [ "$RANK" = "$2" ] && exit 3
read line < "$1/never"
"""
LINES = 1000
RANKS_ON_HOST = 16
IDLE_SECONDS = 5.0
PATIENCE = 600.0

Curves = dict[str, dict[int, float]]
"""By name and number of jobs or ranks."""


def jobs(report: Report, given: argparse.Namespace) -> None:
    adopt_orphans()
    curves: Curves = {what: {} for what in COMMANDS}
    for count in [10] if given.quick else given.jobs:
        print(f"measuring with {count:,} jobs", file=sys.stderr)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "train.py").write_text("print('training')\n")
            make_jobs(folder / "state", count)
            turns = {
                what: partial(cpu_of_all, (*CLOUDTRAIN, *command), folder, REPOSITORY)
                for what, command in COMMANDS.items()
            }
            for what, seconds in in_turns(turns, given.runs).items():
                report.add(f"`{what}`, {count:,} jobs: CPU", OURS, seconds)
                curves[what][count] = min(seconds)
    if given.plot and "jobs" in given.parts:
        draw(given.plot, "jobs on this machine", {"CPU time in seconds": curves})


def make_jobs(home: Path, count: int) -> None:
    """Create a state folder with jobs that have ended."""
    for number in range(count):
        make_job(home / "jobs" / "local" / f"job-{number}", number)
    home.chmod(0o700)
    facts = {"owner": "ada@laptop", "script": "train.py", "instance_type": "local", "instance_count": 1}
    with sqlite3.connect(home / "index.db") as database:
        migrate(database)
        for number in range(count):
            entry = {"name": f"job-{number}", "platform": "local", "submitted_at": float(number)}
            set_parameters(database, insert(database, {**entry, **facts}), {"lr": "0.1"})


def make_job(folder: Path, number: int) -> None:
    """Create the folder of a job that has ended, with the files that its supervisor writes."""
    folder.mkdir(parents=True)
    request = {"settings": {}, "channels": {}, "environment": {}, "hyperparameters": {"lr": "0.1"}}
    times = {"submitted_at": number, "started_at": number, "ended_at": number + 1}
    record = JobRecord(
        JobStatus.COMPLETED,
        **times,
        exit_code=0,
        pid=os.getpid(),
        resumed_at=number,
        clock=steady.clock(),
        metrics={"loss": (0.5, 0.1, 2.5)},
    )
    (folder / "request.json").write_text(json.dumps(request))
    (folder / "state.json").write_bytes(record.to_json())
    phases = (
        {"time": number, "source": "a", "event": "phase", "phase": "train", "state": state, "seconds": 1}
        for state in ("began", "ended")
    )
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(phase)}\n" for phase in phases))


def looks(report: Report, given: argparse.Namespace) -> None:
    metrics, count = (10_000, 100) if given.quick else (1_000_000, 10_000)
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        environ = {**os.environ, "CLOUDTRAIN_HOME": name}
        make_job(home / "jobs" / "local" / "large", 0)
        with open(home / "jobs" / "local" / "large" / "events.jsonl", "w") as file:
            for number in range(metrics):  # in the order in which a runtime writes the fields
                event = {
                    "time": 1_700_000_000.5 + number,
                    "source": "algo-1",
                    "event": "metric",
                    "name": "loss",
                }
                file.write(json.dumps({**event, "value": 1 / (1 + number), "rank": 0}) + "\n")
        for which, times in (("first", 1), ("next", given.runs)):
            found = [_describe(environ) for _ in range(times)]
            what = f"`describe` of {metrics:,} metrics, {which} look"
            report.add(what, OURS, [seconds for seconds, _ in found])
            report.add(f"{what}: memory", OURS, [memory for _, memory in found], "B")
        make_jobs(home, count)
        command = [*CLOUDTRAIN, "list", "-n", str(count)]
        list_all = partial(subprocess.run, command, env=environ, stdout=subprocess.DEVNULL, check=True)
        for which, times in (("first", 1), ("next", given.runs)):
            report.add(f"`cloudtrain list` of {count:,} jobs, {which} look", OURS, measure(list_all, times))
        without_index = f"`cloudtrain list --where` of {count:,} jobs, without an index"
        command = [*CLOUDTRAIN, "list", "--where", "lr < 1"]
        for path in home.glob("index.db*"):
            path.rename(path.with_name(f"kept-{path.name}"))
        one = partial(subprocess.run, command, env=environ, stdout=subprocess.DEVNULL, check=True)
        report.add(without_index, OURS, measure(one, 1))
        for path in home.glob("kept-*"):
            path.rename(path.with_name(path.name.removeprefix("kept-")))
        for what, more in (("list --where", ["--where", "lr < 1"]), ("export", ["--to", f"{name}/jobs.csv"])):
            command = [*CLOUDTRAIN, what.split()[0], *more]
            one = partial(subprocess.run, command, env=environ, stdout=subprocess.DEVNULL, check=True)
            for which, times in (("first", 1), ("next", given.runs)):
                report.add(f"`cloudtrain {what}` of {count:,} jobs, {which}", OURS, measure(one, times))


def _describe(environ: dict[str, str]) -> tuple[float, int]:
    """The seconds of one `describe` in a new process, and the peak memory of that process in bytes."""
    command = [sys.executable, "-c", LOOK, "large"]
    seconds, memory = subprocess.check_output(command, env=environ, text=True).split()
    return float(seconds), int(memory)


def ranks(report: Report, given: argparse.Namespace) -> None:
    figures: dict[str, Curves] = {
        "CPU time in seconds": {"until all ranks run": {}, "while they wait, for a second": {}},
        "memory in MB": {"supervisor and runtimes": {}},
        "CPU time in ms": {"coordinator, one operation": {}},
    }
    started, waiting = figures["CPU time in seconds"].values()
    [memory], [coordinator] = figures["memory in MB"].values(), figures["CPU time in ms"].values()
    before = os.environ.get("CLOUDTRAIN_HOME")
    for count in [4] if given.quick else given.ranks:
        print(f"measuring with {count:,} ranks", file=sys.stderr)
        hosts = max(2, count // RANKS_ON_HOST)
        with tempfile.TemporaryDirectory() as folder:
            os.environ["CLOUDTRAIN_HOME"] = f"{folder}/home"
            Path(folder, "source").mkdir()
            Path(folder, "source", "train.sh").write_text(RANK_SCRIPT)
            for name in ("go", "never"):
                os.mkfifo(f"{folder}/{name}")
            job = JobOfRanks(folder, hosts, count // hosts)
            started[count], waiting[count], memory[count] = job.merges_lines(report)
            job.fails(report)
            job.stops(report)
        seconds = negotiation.measure(count, "one by one", 100 if given.quick else 200)
        report.add(f"coordinator of {count:,} ranks: CPU for an operation", OURS, seconds)
        coordinator[count] = 1000 * seconds
    if before is not None:
        os.environ["CLOUDTRAIN_HOME"] = before
    if given.plot and "ranks" in given.parts:
        draw(given.plot, "ranks on this machine", figures)


class JobOfRanks:
    """Runs the same script as several jobs, one after another."""

    def __init__(self, folder: str, hosts: int, on_host: int) -> None:
        self._folder, self._hosts, self._on_host = folder, hosts, on_host
        self._ranks = hosts * on_host
        self._name = f"{self._ranks:,} ranks on {hosts} hosts"

    def merges_lines(self, report: Report) -> tuple[float, float, float]:
        """Returns the CPU seconds of supervisor and runtimes until all ranks run, those per second of waiting, and
        their memory."""
        job, took = self._start()
        processes = _descendants(job)
        used, began = _cpu(processes), time.perf_counter()
        time.sleep(IDLE_SECONDS)
        share = (_cpu(processes) - used) / (time.perf_counter() - began)
        threads = max(len(os.listdir(f"/proc/{pid}/task")) for pid in processes)
        descriptors = max(len(os.listdir(f"/proc/{pid}/fd")) for pid in processes)
        memory = _memory(processes)
        report.add(f"{self._name}: submit until every rank runs", OURS, took)
        report.add(f"{self._name}: CPU of supervisor and runtimes until then", OURS, used)
        report.add(f"{self._name}: their CPU while the ranks wait", OURS, share, "cores")
        report.add(f"{self._name}: their memory", OURS, memory, "B")
        report.add(f"{self._name}: threads of one of them", OURS, threads, "")
        report.add(f"{self._name}: open descriptors of one of them", OURS, descriptors, "")
        began = time.perf_counter()
        self._go("lines")
        _until(lambda: job.status.is_final)
        took = time.perf_counter() - began
        lines = _log(job).read_bytes().splitlines()
        whole = sum(line.startswith(b"[rank ") and b"] line " in line for line in lines)
        assert job.status == JobStatus.COMPLETED, job.failure
        assert whole == self._ranks * LINES, whole
        report.add(f"{self._name}: {whole:,} lines merged, and the end of all ranks", OURS, took)
        return used, share, memory / 1e6

    def fails(self, report: Report) -> None:
        job, _ = self._start()
        began = time.perf_counter()
        self._go("fail")
        _until(lambda: job.status.is_final)
        took, failure = time.perf_counter() - began, job.failure
        assert failure is not None and (failure.rank, failure.exit_code) == (self._ranks // 2, 3), failure
        report.add(f"{self._name}: one rank fails, until the job has ended", OURS, took)

    def stops(self, report: Report) -> None:
        job, _ = self._start()
        began = time.perf_counter()
        job.stop()
        _until(lambda: job.status.is_final)
        report.add(f"{self._name}: stop, until the job has ended", OURS, time.perf_counter() - began)
        assert job.status == JobStatus.STOPPED, job.status

    def _start(self) -> tuple[Job, float]:
        """Start a job, and wait until all of its ranks run. Also returns the seconds since its submission."""
        began = time.perf_counter()
        job = Estimator(
            "train.sh",
            source_dir=f"{self._folder}/source",
            instance_count=self._hosts,
            distribution={"processes": {"processes_per_host": self._on_host}},
            arguments=[self._folder, str(self._ranks // 2)],
        ).fit(wait=False)
        log = _log(job)
        _until(lambda: job.status.is_final or log.read_bytes().count(b"] ready\n") == self._ranks)
        assert not job.status.is_final, job.failure
        return job, time.perf_counter() - began

    def _go(self, mode: str) -> None:
        """Let all ranks continue, by ending the pipe from which they read."""
        Path(self._folder, "mode").write_text(mode)
        os.close(os.open(f"{self._folder}/go", os.O_WRONLY))


def _log(job: Job) -> Path:
    return Path(job.describe().place, "job.log")


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)


def _descendants(job: Job) -> list[int]:
    """The processes of the supervisor and of the runtimes, which are its children."""
    supervisor = int(json.loads(Path(job.describe().place, "state.json").read_text())["pid"])
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    return [supervisor, *map(int, children)]


def _cpu(processes: list[int]) -> float:
    """The CPU seconds that the processes have used."""
    fields = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in processes)
    return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


def _memory(processes: list[int]) -> int:
    texts = (Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() for pid in processes)
    return sum(int(line.split()[1]) << 10 for text in texts for line in text if line.startswith("Pss:"))


def draw(path: str, of: str, figures: Mapping[str, Curves]) -> None:
    """Draw one diagram for each unit."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "cloudtrain"})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(figures), figsize=(7 if len(figures) == 1 else 10, 4), squeeze=False
    )
    for plot, (unit, curves) in zip(axes[0], figures.items(), strict=True):
        for what, points in curves.items():
            plot.plot([*points], [*points.values()], marker="o", label=what)
        plot.set(xscale="log", xlabel=of, ylabel=unit, ylim=0)
        plot.grid(alpha=0.3)
        plot.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    run_parts(
        __doc__,
        {"jobs": jobs, "looks": looks, "ranks": ranks},
        options=(("--jobs", [10, 1000, 100_000]), ("--ranks", [8, 64, 512, 1024]), ("--plot", None)),
    )
