"""The logs of a Kubernetes job with 200 pods, 1,000 lines each: completeness, order, lag.

    python benchmarks/kubernetes_logs.py [--pods 200] [--lines 1000] [--seconds 60] [--runs 3]

The API server is kube-apiserver with etcd, on loopback. A small program serves the logs, as a kubelet does. There are
two cases:

- All lines exist already and are read: by cloudtrain, and by `kubectl logs` for one pod after the other.
- The pods print their lines over ``--seconds`` while they are followed: by cloudtrain, and by `kubectl
  logs --follow` with a selector. The lag of a line is the time from its print to its arrival. The kubelet looks for new
  lines ten times a second.

kubectl does not put the lines of several pods in order. The contestants take turns. CPU is that of the client.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import _peers
from _common import Timing
from _kubernetes_job import LABELS, NAME, JobOfPods, end, job_of_pods

READ = """
import sys
from cloudtrain.platforms import get_platform
for line in get_platform("kubernetes").logs(sys.argv[1], follow=sys.argv[2] == "follow"):
    print(line, flush=True)
"""
SELECTOR = f"cloudtrain/job={LABELS['cloudtrain/job']}"
ALL = "for pod in {pods}; do kubectl logs --timestamps $pod; done"
_LINE = re.compile(rb"line (\d+) of (\d+) printed at ([\d.]+) ")


@dataclass(frozen=True)
class Run:
    """One run of one contestant."""

    numbers: Sequence[tuple[int, int]]
    """Pod and number of each line, in the order of arrival."""
    printed: Sequence[float]
    arrived: Sequence[float]
    seconds: float
    cpu: float
    memory: int
    """The largest resident size of a process, in bytes."""

    def whole(self, wanted: int) -> str:
        twice = len(self.numbers) - len(set(self.numbers))
        return f"{len(set(self.numbers))} of {wanted}" + (f", {twice} twice" if twice else "")

    @property
    def steps_back(self) -> int:
        """How many lines follow one that was printed later."""
        return sum(later < earlier for earlier, later in pairwise(self.printed))

    @property
    def lags(self) -> list[float]:
        return sorted(arrived - printed for printed, arrived in zip(self.printed, self.arrived, strict=True))


def run(command: Sequence[str], environment: Mapping[str, str], wanted: int, patience: float) -> Run:
    """Run a contestant until it ends, or has printed all lines."""
    start = time.perf_counter()
    numbers: list[tuple[int, int]] = []
    printed: list[float] = []
    arrived: list[float] = []
    rest = b""
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=sys.stderr) as process:
        assert process.stdout is not None
        while data := os.read(process.stdout.fileno(), 1 << 20):
            now = time.time()
            whole, _, rest = (rest + data).rpartition(b"\n")
            for match in _LINE.finditer(whole):
                numbers.append((int(match[2]), int(match[1])))
                printed.append(float(match[3]))
                arrived.append(now)
            if len(numbers) >= wanted or time.perf_counter() - start > patience:
                break
        seconds = time.perf_counter() - start
        cpu, memory = end(process)
    return Run(numbers, printed, arrived, seconds, cpu, memory)


def once(job: JobOfPods, folder: Path, lines: int, runs: int) -> None:
    """All lines are there."""
    wanted = lines * len(job.pods)
    environment = job.environment(folder)
    ours = [str(_peers.cloudtrain_for_kubernetes()), "-c", READ, NAME, "once"]
    loop = ["sh", "-c", ALL.format(pods=" ".join(job.pods))]
    found: dict[str, list[Run]] = {"cloudtrain": [], "kubectl, one pod after the other": []}
    for _ in range(runs):
        for (_, kept), command in zip(found.items(), (ours, loop), strict=True):
            job.print(lines, 0)
            kept.append(run(command, environment, wanted, 600))
    print("| who | lines | steps back in time | took, median (min to max) | CPU |")
    print("| --- | --- | --- | --- | --- |")
    for who, kept in found.items():
        took, cpu = Timing.of(one.seconds for one in kept), Timing.of(one.cpu for one in kept)
        print(f"| {who} | {kept[-1].whole(wanted)} | {kept[-1].steps_back} | {took} | {cpu} |")


def followed(job: JobOfPods, folder: Path, lines: int, seconds: float, runs: int) -> None:
    """The lines are printed while they are followed."""
    wanted = lines * len(job.pods)
    environment = job.environment(folder)
    ours = [str(_peers.cloudtrain_for_kubernetes()), "-c", READ, NAME, "follow"]
    most = f"--max-log-requests={len(job.pods)}"
    theirs = ["kubectl", "logs", "--follow", "--prefix", "--tail=-1", "-l", SELECTOR, most]
    found: dict[str, list[Run]] = {"cloudtrain": [], "kubectl logs -l -f": []}
    for _ in range(runs):
        for (_, kept), command in zip(found.items(), (ours, theirs), strict=True):
            job.print(lines, seconds)
            kept.append(run(command, environment, wanted, 2 * seconds + 30))
    print("| who | lines | steps back in time | lag: median, 95 %, longest | CPU | memory |")
    print("| --- | --- | --- | --- | --- | --- |")
    for who, kept in found.items():
        lags = [one.lags for one in kept]
        middle = median(median(found) for found in lags)
        late = median(found[int(0.95 * len(found))] for found in lags)
        longest = max(found[-1] for found in lags)
        cpu, memory = Timing.of(one.cpu for one in kept), max(one.memory for one in kept) >> 20
        print(
            f"| {who} | {kept[-1].whole(wanted)} | {median(one.steps_back for one in kept)} | "
            f"{middle:.2f} s, {late:.2f} s, {longest:.2f} s | {cpu} | {memory} MB |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pods", type=int, default=200)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, job_of_pods(options.pods, with_logs=True) as job:
        print(f"{options.pods} pods x {options.lines} lines, all there:\n")
        once(job, Path(scratch, "once"), options.lines, options.runs)
        print(f"\n{options.pods} pods x {options.lines} lines in {options.seconds:g} s, followed:\n")
        followed(job, Path(scratch, "followed"), options.lines, options.seconds, options.runs)


if __name__ == "__main__":
    main()
