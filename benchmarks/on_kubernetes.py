"""Kubernetes: submitting a script, watching a job of 200 pods, and its logs, on a real API server.

    python benchmarks/on_kubernetes.py [submit] [watch] [logs] [--runs 5] [--pods 200] [--quick] [--json]

- ``submit``: each submit is a separate Python process, measured from its start to its end, without waiting for the job.
  CPU is the user and system time of the process. Kubeflow's SDK creates one TrainJob, with the source of a function in
  its command; cloudtrain a Job, or a TrainJob, and the objects that it owns: the packed source and the runtime, a
  Secret, a Service and a NetworkPolicy.
- ``watch``: requests, CPU and memory of a client in ``--seconds``; the kubelet reports the status of one pod after the
  other, five times a second. cloudtrain describes the job once a second, with all hosts, as a notebook does while `fit`
  waits; the SDK looks every two seconds, its default; kubectl prints one line for each change.
- ``logs``: 1,000 lines of each pod: completeness, order, lag. They exist already, and are read by cloudtrain, and by
  `kubectl logs` for one pod after the other; or the pods print them over ``--seconds``, followed by cloudtrain, and by
  `kubectl logs --follow` with a selector. The lag of a line is the time from its print to its arrival; the kubelet
  looks for new lines ten times a second. kubectl does not put the lines of several pods in order.

The API server is kube-apiserver with etcd, on loopback, which ``scripts/build_kubernetes`` builds, with the definition
of TrainJobs. No pod starts: a small program serves the logs, as a kubelet does. The contestants take turns.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, pairwise
from pathlib import Path
from statistics import median

from _common import OURS, Report, run_parts
from _kubernetes_job import LABELS, NAME, JobOfPods, define, end, job_of_pods
from _peers import KUBEFLOW, cloudtrain, peer
from kube_proxy import KubeProxy
from kube_server import KubeServer

SUBMIT = """
from cloudtrain import Estimator
options = {{"discard_outputs": True, "rendering": "{rendering}"}}
estimator = Estimator("train.py", platform="kubernetes", image_uri="python:3.12", platform_options=options)
estimator.fit(wait=False)
"""

SUBMIT_BY_SDK = """
from kubeflow.trainer import CustomTrainer, TrainerClient
def train():
    print("hello")
TrainerClient().train(runtime="plain", trainer=CustomTrainer(func=train, num_nodes=1))
"""

WATCH = """
import sys, time
from cloudtrain.platforms import get_platform
platform, end = get_platform("kubernetes"), time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    platform.describe(sys.argv[1])
    time.sleep(1)
"""

WATCH_BY_SDK = """
import sys
from kubeflow.trainer import TrainerClient
try:
    TrainerClient().wait_for_job_status(sys.argv[1], timeout=int(float(sys.argv[2])))
except TimeoutError:
    pass
"""

_OBJECTS = re.compile(r"/api(?:s/[^/]+)?/[^/]+(?:/namespaces/[^/]+)?/([a-z]+)(?:/([^/]+))?(/log)?")
SELECTOR = f"cloudtrain/job={LABELS['cloudtrain/job']}"


READ = """
import sys
from cloudtrain.platforms import get_platform
for line in get_platform("kubernetes").logs(sys.argv[1], follow=sys.argv[2] == "follow"):
    print(line, flush=True)
"""
ALL = "for pod in {pods}; do kubectl logs --timestamps $pod; done"
_LINE = re.compile(rb"line (\d+) of (\d+) printed at ([\d.]+) ")


@dataclass
class Submits:
    """The submits of one contestant."""

    python: Path
    code: str
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    def submit(self, folder: Path, environment: Mapping[str, str], *, counts: bool) -> None:
        (folder / "submit.py").write_text(self.code)  # in a file, because the SDK reads the function's source
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([str(self.python), "submit.py"], cwd=folder, env=environment, check=True)
        took, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if counts:
            self.seconds.append(took)
            self.cpu_seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def submit(report: Report, given: argparse.Namespace) -> None:
    python = cloudtrain("kubernetes")
    contestants = {
        OURS: Submits(python, SUBMIT.format(rendering="job")),
        "cloudtrain, TrainJob": Submits(python, SUBMIT.format(rendering="trainjob")),
    }
    with report.optional(KUBEFLOW):
        contestants[KUBEFLOW] = Submits(peer(KUBEFLOW), SUBMIT_BY_SDK)
    with tempfile.TemporaryDirectory() as scratch, KubeServer() as server:
        define(server)
        folder = Path(scratch)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CLOUDTRAIN_")}
        environment = {
            **clean,
            "KUBECONFIG": str(server.kubeconfig(folder / "kubeconfig", user="bench")),
            "CLOUDTRAIN_HOME": str(folder / "home"),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }
        for turn in range(given.runs + 1):
            for contestant in contestants.values():
                (folder / "train.py").write_text(f"print({time.time_ns()})\n")
                contestant.submit(folder, environment, counts=turn > 0)
    what = "submit a script to Kubernetes"
    report.add_all(what, {who: one.seconds for who, one in contestants.items()})
    report.add_all(f"{what}: CPU", {who: one.cpu_seconds for who, one in contestants.items()})


def kinds(requests: Iterable[str]) -> str:
    """The number of requests of each kind, such as ``1 list of pods, 1 watch of pods``."""
    counts: Counter[str] = Counter()
    for request in requests:
        path, _, query = request.partition(" ")[2].partition("?")
        found = _OBJECTS.fullmatch(path)
        if not found:
            counts["discovery"] += 1
            continue
        plural, name, subresource = found.groups()
        verb = "watch" if "watch=true" in query else "log" if subresource else "get" if name else "list"
        counts[f"{verb} of {plural}"] += 1
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))


def watch_by(
    job: JobOfPods, proxy: KubeProxy, folder: Path, command: Sequence[str], seconds: float
) -> tuple[list[str], float, int]:
    """Run one contestant while pods report. Returns its requests, its CPU seconds, and its memory in bytes."""
    environment = job.environment(folder, proxy.url)
    proxy.requests.clear()
    ended = threading.Event()

    def report() -> None:
        for pod in cycle(job.pods):
            if ended.wait(0.2):
                return
            job.touch(pod)

    reporter = threading.Thread(target=report)
    reporter.start()
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        time.sleep(seconds)
        cpu, memory = end(process)
    ended.set()
    reporter.join()
    return [*proxy.requests], cpu, memory


def watch(report: Report, given: argparse.Namespace) -> None:
    pods, seconds = (5, 5.0) if given.quick else (given.pods, given.seconds)
    longer = str(seconds + 30)
    contestants = {OURS: [str(cloudtrain("kubernetes")), "-c", WATCH, NAME, longer]}
    with report.optional(KUBEFLOW):
        contestants[KUBEFLOW] = [str(peer(KUBEFLOW)), "-c", WATCH_BY_SDK, NAME, longer]
    contestants["kubectl get pods --watch"] = ["kubectl", "get", "pods", "-l", SELECTOR, "--watch"]
    what = f"watch {pods} pods for {seconds:g} s"
    with (
        tempfile.TemporaryDirectory() as scratch,
        job_of_pods(pods, with_logs=True) as job,
        KubeProxy(job.server) as proxy,
    ):
        job.print(1000, seconds)
        for who, command in contestants.items():
            requests, cpu, memory = watch_by(job, proxy, Path(scratch), command, seconds)
            report.add(f"{what}: requests", who, len(requests), "", kinds(requests))
            report.add(f"{what}: CPU", who, cpu)
            report.add(f"{what}: memory", who, memory, "B")


@dataclass(frozen=True)
class Run:
    """One run of one contestant."""

    numbers: Sequence[tuple[int, int]]
    """The pod and the number of each line, in the order of arrival."""
    printed: Sequence[float]
    arrived: Sequence[float]
    seconds: float
    cpu: float
    memory: int
    """The peak resident memory of a process, in bytes."""

    def whole(self, wanted: int) -> str:
        twice = len(self.numbers) - len(set(self.numbers))
        return f"{len(set(self.numbers))} of {wanted}" + (f", {twice} twice" if twice else "")

    @property
    def steps_back(self) -> int:
        """The number of lines that follow a line that was printed later."""
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


def logs(report: Report, given: argparse.Namespace) -> None:
    pods, lines, seconds, runs = (
        (5, 50, 5.0, 1) if given.quick else (given.pods, given.lines, given.seconds, 3)
    )
    ours = [str(cloudtrain("kubernetes")), "-c", READ, NAME]
    follow = [
        "kubectl",
        "logs",
        "--follow",
        "--prefix",
        "--tail=-1",
        "-l",
        SELECTOR,
        f"--max-log-requests={pods}",
    ]
    with tempfile.TemporaryDirectory() as scratch, job_of_pods(pods, with_logs=True) as job:
        one_by_one = ["sh", "-c", ALL.format(pods=" ".join(job.pods))]
        for how, over, contestants in (
            ("all there", 0.0, {OURS: [*ours, "once"], "kubectl, one pod after the other": one_by_one}),
            (f"in {seconds:g} s, followed", seconds, {OURS: [*ours, "follow"], "kubectl logs -l -f": follow}),
        ):
            what, wanted = f"logs of {pods} pods x {lines} lines, {how}", lines * pods
            environment = job.environment(Path(scratch, "followed" if over else "once"))
            found: dict[str, list[Run]] = {who: [] for who in contestants}
            for _ in range(runs):
                for who, command in contestants.items():
                    job.print(lines, over)
                    found[who].append(run(command, environment, wanted, 2 * over + 30 if over else 600))
            for who, kept in found.items():
                report.add(what, who, [one.seconds for one in kept], note=kept[-1].whole(wanted))
            for who, kept in found.items():
                report.add(f"{what}: CPU", who, [one.cpu for one in kept])
            for who, kept in found.items():
                report.add(f"{what}: steps back in time", who, median(one.steps_back for one in kept), "")
            if over:
                for who, kept in found.items():
                    lags = [one.lags[int(0.95 * len(one.lags))] for one in kept]
                    report.add(f"{what}: lag of 95 % of the lines", who, lags)


if __name__ == "__main__":
    run_parts(
        __doc__,
        {"submit": submit, "watch": watch, "logs": logs},
        options=(("--pods", 200), ("--lines", 1000), ("--seconds", 60.0)),
    )
