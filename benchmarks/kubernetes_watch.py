"""Watching a Kubernetes job of 200 pods: requests to the API server, memory and CPU of the client.

    python benchmarks/kubernetes_watch.py [--pods 200] [--seconds 60]

The API server is kube-apiserver with etcd, on loopback. The tests' proxy, in front of it, counts the requests.
Meanwhile, the kubelet reports the status of one pod after the other, five times a second.

- cloudtrain describes the job once a second, as a notebook does while `fit` waits.
- Kubeflow's SDK waits for the job, and looks every two seconds, its default.
- kubectl prints the pods, and their changes: ``kubectl get pods --watch``.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import _peers
from _kubernetes_job import LABELS, NAME, JobOfPods, end, job_of_pods
from kube_proxy import KubeProxy

OURS = """
import sys, time
from cloudtrain.platforms import get_platform
platform, end = get_platform("kubernetes"), time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    platform.describe(sys.argv[1])
    time.sleep(1)
"""

SDK = """
import sys
from kubeflow.trainer import TrainerClient
try:
    TrainerClient().wait_for_job_status(sys.argv[1], timeout=int(float(sys.argv[2])))
except TimeoutError:
    pass
"""

_OBJECTS = re.compile(r"/api(?:s/[^/]+)?/[^/]+(?:/namespaces/[^/]+)?/([a-z]+)(?:/([^/]+))?(/log)?")
SELECTOR = f"cloudtrain/job={LABELS['cloudtrain/job']}"


@dataclass(frozen=True)
class Watched:
    """The cost of one contestant."""

    requests: Sequence[str]
    cpu: float
    memory: int

    def count(self) -> str:
        """The requests by kind: ``1 list of pods, 1 watch of pods``."""
        kinds: Counter[str] = Counter()
        for request in self.requests:
            path, _, query = request.partition(" ")[2].partition("?")
            found = _OBJECTS.fullmatch(path)
            if not found:
                kinds["discovery"] += 1
                continue
            plural, name, subresource = found.groups()
            verb = "watch" if "watch=true" in query else "log" if subresource else "get" if name else "list"
            kinds[f"{verb} of {plural}"] += 1
        return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


def watch(job: JobOfPods, proxy: KubeProxy, folder: Path, command: Sequence[str], seconds: float) -> Watched:
    """Run one contestant, while pods report."""
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
    return Watched([*proxy.requests], cpu, memory)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pods", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    longer = str(options.seconds + 30)
    contestants = {
        "cloudtrain": [str(_peers.cloudtrain_for_kubernetes()), "-c", OURS, NAME, longer],
        _peers.KUBEFLOW: [str(_peers.kubeflow()), "-c", SDK, NAME, longer],
        "kubectl get pods --watch": ["kubectl", "get", "pods", "-l", SELECTOR, "--watch"],
    }
    print(f"{options.pods} pods, {options.seconds:g} s:\n")
    print("| who | requests | CPU | memory |")
    print("| --- | --- | --- | --- |")
    with (
        tempfile.TemporaryDirectory() as scratch,
        job_of_pods(options.pods, with_logs=True) as job,
        KubeProxy(job.server) as proxy,
    ):
        job.print(1000, options.seconds)
        for who, command in contestants.items():
            found = watch(job, proxy, Path(scratch), command, options.seconds)
            print(
                f"| {who} | {len(found.requests)}: {found.count()} | {found.cpu:.1f} s | {found.memory >> 20} MB |",
                flush=True,
            )


if __name__ == "__main__":
    main()
