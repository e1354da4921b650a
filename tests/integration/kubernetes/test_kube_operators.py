"""Jobs as JobSet, TrainJob and MPIJob: from the submission to the end, with their operators played.

The API server checks the objects by the definitions of the operators; only rules in CEL are too new for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kube_cluster import KubeCluster
from kube_fixtures import Namespace, new_namespace
from kube_objects import has_condition
from kube_operator_controllers import operators

from cloudtrain.contract import JobStatus
from cloudtrain.job import Job
from cloudtrain.submission import prepare

SCRIPT = """
import os, socket
hosts = os.environ["SM_HOSTS"]
own = os.environ["SM_CURRENT_HOST"]
address = socket.gethostbyname(os.environ["MASTER_ADDR"])
found = [name for name in os.environ if name.startswith(("PET_", "OMPI_MCA_orte_default", "HYDRA_HOST", "K_MPI"))]
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "on", own, "with", found, "resolved", bool(address))
"""
WAITS_ONCE = """
import os, pathlib, time
seen = pathlib.Path("/data", os.environ["RANK"])
if not seen.exists():
    seen.touch()
    print("first attempt")
    time.sleep(60)
"""
PROCESSES = {"processes": {"enabled": True, "processes_per_host": 1}}


@pytest.fixture(scope="module")
def cluster(kube_cluster: KubeCluster) -> Iterator[KubeCluster]:
    with operators(kube_cluster, "JobSet", "TrainJob", "MPIJob"):
        yield kube_cluster


@pytest.fixture
def kubernetes(cluster: KubeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    with new_namespace(cluster, tmp_path_factory.mktemp("kubeconfig")) as namespace:
        yield namespace


def submit(folder: Path, script: str, rendering: str, **fields: Any) -> tuple[Job, dict[str, Any]]:
    (folder / "train.py").write_text(script)
    options = {"discard_outputs": True, "rendering": rendering, **fields.pop("options", {})}
    described = {
        "entry_point": str(folder / "train.py"),
        "image_uri": "python:3.12",
        "platform": "kubernetes",
        "job_name": "job",
        "instance_count": 2,
        "distribution": PROCESSES,
        "stop_grace": 2,
        **fields,
    }
    submission = prepare({**described, "platform_options": options}, defaults={})
    return submission.submit(), dict(submission.request.body)


def make_claim(kubernetes: Namespace) -> None:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"metadata": {"name": "data"}, "spec": spec}
    kubernetes.bench.create("persistentvolumeclaims", kubernetes.name, claim)


def wait_for(kubernetes: Namespace, plural: str, condition: str) -> dict[str, Any]:
    """The job's main object, when it has a condition."""
    kubernetes.wait_until(
        lambda: has_condition(kubernetes.bench.get(plural, kubernetes.name, "job"), condition), condition
    )
    return kubernetes.bench.get(plural, kubernetes.name, "job")


def test_a_jobset_starts_again_as_a_whole(kubernetes: Namespace, tmp_path: Path) -> None:
    """A preempted pod does not count, although no retries are allowed."""
    make_claim(kubernetes)
    job, body = submit(tmp_path, WAITS_ONCE + SCRIPT, "auto", options={"volumes": ["data:/data"]})
    assert (body["rendering"], body["objects"][0]["kind"]) == ("jobset", "JobSet")
    assert "rendering: trainjob or mpijob is possible, too" in body["why"]
    for host in ("job-node-0-0", "job-node-0-1"):
        kubernetes.wait_for_line(host, "first attempt")
    first = {pod["metadata"]["uid"] for pod in kubernetes.pods}
    kubernetes.cluster.preempt(kubernetes.name, kubernetes.pod("job-node-0-1")["metadata"]["name"])
    status = wait_for(kubernetes, "jobsets", "Completed")["status"]
    assert (status["restarts"], status["restartsCountTowardsMax"]) == (1, 0)
    assert "rank 0 of 2 on job-node-0-0 with [] resolved True" in kubernetes.log("job-node-0-0")
    assert not first & {pod["metadata"]["uid"] for pod in kubernetes.pods}, "all pods are new"
    assert job.describe().status == JobStatus.COMPLETED


def test_a_trainjob(kubernetes: Namespace, tmp_path: Path) -> None:
    job, _ = submit(tmp_path, SCRIPT, "trainjob")
    wait_for(kubernetes, "trainjobs", "Complete")
    assert "rank 1 of 2 on job-node-0-1.job with [] resolved True" in kubernetes.log("job-node-0-1")
    assert job.describe().status == JobStatus.COMPLETED


MPI_SCRIPT = """
import os
found = [name for name in os.environ if name.startswith(("OMPI_MCA_orte_default", "OMPI_MCA_plm_rsh_args", "K_MPI"))]
rank, size = os.environ["OMPI_COMM_WORLD_RANK"], os.environ["OMPI_COMM_WORLD_SIZE"]
print("rank", rank, "of", size, "on", os.environ["SM_CURRENT_HOST"], "with", found)
"""
MPI = {"mpi": {"enabled": True, "processes_per_host": 2}}


def test_an_mpijob_whose_launcher_is_a_worker(kubernetes: Namespace, tmp_path: Path) -> None:
    """mpirun runs in the launcher, and the operator's variables, keys and file of hosts do not disturb it.

    The launcher starts again in its pod when a worker is preempted: its Job would count a failed pod.
    """
    make_claim(kubernetes)
    options = {"launcher_as_worker": True, "volumes": ["data:/data"]}
    script = WAITS_ONCE + MPI_SCRIPT
    job, _ = submit(tmp_path, script, "mpijob", distribution=MPI, options=options)
    for host in ("job-launcher", "job-worker-0"):
        kubernetes.wait_for_line(host, "first attempt")
    launcher = kubernetes.pod("job-launcher")["metadata"]["uid"]
    kubernetes.cluster.preempt(kubernetes.name, "job-worker-0")
    wait_for(kubernetes, "mpijobs", "Succeeded")
    log = kubernetes.log("job-launcher")
    assert [f"rank {rank} of 4 on job-launcher with []" in log for rank in (0, 1)] == [True, True], log
    assert kubernetes.pod("job-launcher")["metadata"]["uid"] == launcher
    assert job.describe().status == JobStatus.COMPLETED


PATIENT = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("working", flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.mark.soak
@pytest.mark.parametrize(
    ("rendering", "plural", "ended"),
    [("jobset", "jobsets", True), ("trainjob", "trainjobs", False), ("mpijob", "mpijobs", True)],
)
def test_a_stop_ends_every_kind(
    kubernetes: Namespace, tmp_path: Path, rendering: str, plural: str, ended: bool
) -> None:
    """A JobSet and an MPIJob are finished then, so that their TTL begins. A TrainJob has no TTL: it is suspended."""
    job, _ = submit(tmp_path, PATIENT, rendering)
    kubernetes.wait_until(lambda: job.status == JobStatus.RUNNING, "it runs")
    hosts = [host.name for host in job.describe().hosts]
    kubernetes.wait_for_line(hosts[-1], "working")
    assert all(host.message.startswith("on node ") for host in job.describe().hosts)
    job.stop()
    kubernetes.wait_until(lambda: job.status == JobStatus.STOPPED, "it is stopped")
    description = job.describe()
    assert (description.reason, description.exit_code) == ("stopped by the user", 143)
    assert description.phases["train"] > 0
    found = kubernetes.bench.get(plural, kubernetes.name, "job")
    assert has_condition(found, "Failed") is ended
    suspended = found["spec"].get("runPolicy", found["spec"]).get("suspend", False)
    assert suspended is not ended
    kubernetes.wait_until(lambda: not kubernetes.pods or plural == "mpijobs", "its pods are gone")
