"""A job with many pods on a real API server, of which nothing runs: the kubelet of its node only serves logs.

It is both a Job of cloudtrain and a TrainJob of Kubeflow's SDK, which find the same pods.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from _common import TEST_FOLDERS, TESTS

sys.path += TEST_FOLDERS

from kube_nodes import Node
from kube_objects import condition, now, owned_by
from kube_server import KubeServer

NAME, NODE, SPACE = "job", "bench", "default"
LABELS = {
    "app.kubernetes.io/managed-by": "cloudtrain",
    "cloudtrain/job": NAME,
    "jobset.sigs.k8s.io/jobset-name": NAME,
    "jobset.sigs.k8s.io/replicatedjob-name": "node",
}
INDEX = "batch.kubernetes.io/job-completion-index"
POD = {"restartPolicy": "Never", "containers": [{"name": "node", "image": "python:3.12"}], "nodeName": NODE}

KUBELET = Path(__file__).with_name("_kubelet_logs.py")


RUNTIMES = (
    ("ClusterTrainingRuntime", "clustertrainingruntimes", "Cluster"),
    (
        "TrainingRuntime",
        "trainingruntimes",
        "Namespaced",
    ),
)

RUNTIME = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: plain, labels: {trainer.kubeflow.org/framework: plain}}
spec:
  mlPolicy: {numNodes: 1}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            template:
              spec:
                containers: [{name: node, image: "python:3.12"}]
"""


@dataclass
class JobOfPods:
    """The server and its job, all of whose pods are running."""

    server: KubeServer
    pods: list[str]
    kubelet: subprocess.Popen[str] | None

    def environment(self, folder: Path, url: str | None = None) -> dict[str, str]:
        """The environment in which a client finds the job. ``url``: that of a proxy in front of the server."""
        folder.mkdir(exist_ok=True)
        kubeconfig = self.server.kubeconfig(folder / "kubeconfig", user="bench", url=url)
        own = {name: value for name, value in os.environ.items() if not name.startswith("CLOUDTRAIN_")}
        return {**own, "KUBECONFIG": str(kubeconfig), "CLOUDTRAIN_HOME": str(folder / "home")}

    def print(self, lines: int, seconds: float) -> None:
        """Let each pod print ``lines`` lines over ``seconds`` seconds, from the next request for a log on.

        If ``seconds`` is 0, all lines exist already.
        """
        assert self.kubelet and self.kubelet.stdin and self.kubelet.stdout
        self.kubelet.stdin.write(json.dumps([lines, seconds]) + "\n")
        self.kubelet.stdin.flush()
        self.kubelet.stdout.readline()

    def touch(self, pod: str) -> None:
        """Report the status of a pod again, as the kubelet does."""
        body = {"status": {"conditions": [{**condition("Ready", True), "lastProbeTime": now()}]}}
        self.server.bench.patch("pods", SPACE, pod, body, "status")

    def end(self) -> None:
        """Set all pods and the job to succeeded."""
        _in_parallel(lambda pod: self._patch(pod, "Succeeded", {"terminated": {"exitCode": 0}}), self.pods)
        complete = {"conditions": [condition("Complete", True)], "completionTime": now()}
        self.server.bench.patch("jobs", SPACE, NAME, {"status": complete}, "status")

    def begin(self) -> None:
        """Set all pods to running."""
        self.server.bench.patch(
            "jobs", SPACE, NAME, {"status": {"conditions": None, "completionTime": None}}, "status"
        )
        _in_parallel(lambda pod: self._patch(pod, "Running", {"running": {"startedAt": now()}}), self.pods)

    def _patch(self, pod: str, phase: str, state: Mapping[str, Any]) -> None:
        container = {
            "name": "node",
            "image": "",
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "state": state,
        }
        status = {"phase": phase, "startTime": now(), "containerStatuses": [container]}
        self.server.bench.patch("pods", SPACE, pod, {"status": status}, "status")


def define(server: KubeServer) -> None:
    """Install the definitions of Kubeflow Trainer, and a runtime."""
    text = (TESTS / "crds" / "trainjobs.yaml").read_text()
    # kube-apiserver 1.20 treats an empty default as null
    definitions: list[dict[str, Any]] = [yaml.safe_load(text.replace("default: ''", "default: none"))]
    for kind, plural, scope in RUNTIMES:
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        definitions.append(
            {
                "metadata": {"name": f"{plural}.trainer.kubeflow.org"},
                "spec": {
                    "group": "trainer.kubeflow.org",
                    "names": {
                        "kind": kind,
                        "plural": plural,
                        "singular": kind.lower(),
                        "listKind": f"{kind}List",
                    },
                    "scope": scope,
                    "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": schema}],
                },
            }
        )
    for definition in definitions:
        server.bench.create("customresourcedefinitions", None, definition)
    deadline = time.monotonic() + 60
    for name in ("clustertrainingruntimes", "trainjobs"):
        while server.bench.raw("GET", f"/apis/trainer.kubeflow.org/v1alpha1/{name}")[0] != 200:
            assert time.monotonic() < deadline, name
            time.sleep(0.1)
    server.bench.create("clustertrainingruntimes", None, yaml.safe_load(RUNTIME))
    server.bench.create("namespaces", None, {"metadata": {"name": "kubeflow-system"}})
    version = {"metadata": {"name": "kubeflow-trainer-public"}, "data": {"kubeflow_trainer_version": "2.3.0"}}
    server.bench.create("configmaps", "kubeflow-system", version)


@contextmanager
def job_of_pods(count: int, *, with_logs: bool) -> Iterator[JobOfPods]:
    """A server with a job of ``count`` pods."""
    with KubeServer() as server:
        define(server)
        bench, kubelet = server.bench, _kubelet(server) if with_logs else None
        try:
            body, status = Node(NODE).to_object(
                int(kubelet.stdout.readline()) if kubelet and kubelet.stdout else 1
            )
            bench.create("nodes", None, body)
            bench.patch("nodes", None, NODE, {"status": status}, "status")
            template = {"metadata": {"labels": LABELS}, "spec": POD}
            spec = {"parallelism": count, "completions": count, "template": template}
            owner = bench.create("jobs", SPACE, {"metadata": {"name": NAME, "labels": LABELS}, "spec": spec})
            ref = {"runtimeRef": {"name": "plain"}, "trainer": {"numNodes": count}}
            kind = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
            bench.create("trainjobs", SPACE, {**kind, "metadata": {"name": NAME}, "spec": ref})
            job = JobOfPods(server, [f"{NAME}-{number}-{number:05}" for number in range(count)], kubelet)

            def make(number: int) -> None:
                index = str(number)
                metadata = {
                    "name": job.pods[number],
                    "labels": {**LABELS, INDEX: index},
                    "annotations": {INDEX: index},
                    "ownerReferences": owned_by(owner),
                }
                bench.create(
                    "pods", SPACE, {"metadata": metadata, "spec": {**POD, "hostname": f"{NAME}-{number}"}}
                )

            _in_parallel(make, range(count))
            job.begin()
            yield job
        finally:
            if kubelet:
                kubelet.kill()
                kubelet.wait()


def _kubelet(server: KubeServer) -> subprocess.Popen[str]:
    pki = server.certificates
    command = [sys.executable, str(KUBELET), str(pki)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _in_parallel(act: Any, items: Any) -> None:
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(act, items):
            pass


def end(process: subprocess.Popen[bytes]) -> tuple[float, int]:
    """End a process. Returns its CPU seconds, and its peak resident memory in bytes.

    `getrusage` would include the memory of this process, because the other one was forked from it.
    """
    status = Path(f"/proc/{process.pid}/status").read_text()
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)  # missing once it has ended
    os.kill(process.pid, signal.SIGTERM)  # `terminate` may reap it
    _, code, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(code)
    return usage.ru_utime + usage.ru_stime, int(peak[1]) << 10 if peak else 0
