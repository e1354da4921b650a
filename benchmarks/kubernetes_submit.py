"""Submitting a job to Kubernetes: the whole process, against Kubeflow's SDK, on one real API server.

    python benchmarks/kubernetes_submit.py [--runs 9]

Each submit is a separate Python process, measured from its start to its end, without waiting for the job. The
contestants take turns. CPU is the user and system time of the process: on a busy machine, it is more reliable than
wall-clock time. The API server is kube-apiserver with etcd, on loopback, with the definition of TrainJobs and a runtime
for them. No pod starts: there is no kubelet.

The SDK creates one TrainJob, with the source of a function in its command. cloudtrain creates a Job, or a TrainJob, and
the objects that it owns: the packed source and the runtime, a Secret, a Service and a NetworkPolicy.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import _peers
import yaml
from _common import TEST_FOLDERS, TESTS, Timing, header, row

sys.path += TEST_FOLDERS

from kube_server import KubeServer

OURS = """
from cloudtrain import Estimator
options = {{"discard_outputs": True, "rendering": "{rendering}"}}
estimator = Estimator("train.py", platform="kubernetes", image_uri="python:3.12", platform_options=options)
estimator.fit(wait=False)
"""

SDK = """
from kubeflow.trainer import CustomTrainer, TrainerClient
def train():
    print("hello")
TrainerClient().train(runtime="plain", trainer=CustomTrainer(func=train, num_nodes=1))
"""

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
class Submits:
    """The submits of one contestant."""

    python: Path
    code: str
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    def submit(self, folder: Path, environment: Mapping[str, str], *, counts: bool) -> None:
        (folder / "submit.py").write_text(self.code)  # a file: the SDK reads the source of the function
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([str(self.python), "submit.py"], cwd=folder, env=environment, check=True)
        took, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if counts:
            self.seconds.append(took)
            self.cpu_seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def define(server: KubeServer) -> None:
    """Install the definitions of Kubeflow Trainer, and a runtime."""
    text = (TESTS / "crds" / "trainjobs.yaml").read_text()
    # kube-apiserver 1.20 takes an empty default for null
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
def cluster(folder: Path):  # type: ignore[no-untyped-def]
    """The environment in which a client finds the API server."""
    with KubeServer() as server:
        define(server)
        kubeconfig = server.kubeconfig(folder / "kubeconfig", user="bench")
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CLOUDTRAIN_")}
        yield {
            **clean,
            "KUBECONFIG": str(kubeconfig),
            "CLOUDTRAIN_HOME": str(folder / "home"),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    own = _peers.cloudtrain_for_kubernetes()
    contestants = {
        "cloudtrain, Job": Submits(own, OURS.format(rendering="job")),
        "cloudtrain, TrainJob": Submits(own, OURS.format(rendering="trainjob")),
        _peers.KUBEFLOW: Submits(_peers.kubeflow(), SDK),
    }
    with tempfile.TemporaryDirectory() as scratch, cluster(Path(scratch)) as environment:
        for turn in range(runs + 1):
            for contestant in contestants.values():
                Path(scratch, "train.py").write_text(f"print({time.time_ns()})\n")
                contestant.submit(Path(scratch), environment, counts=turn > 0)
    *ours, (peer_name, peer) = contestants.items()
    print(header())
    for name, one in ours:
        what = f"submit a script that has changed, as a {name.split()[-1]}"
        print(row(what, Timing.of(one.seconds), peer_name, Timing.of(peer.seconds)))
        print(row(f"{what}: CPU", Timing.of(one.cpu_seconds), peer_name, Timing.of(peer.cpu_seconds)))


if __name__ == "__main__":
    main()
