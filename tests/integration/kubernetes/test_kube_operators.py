"""Jobs as JobSet, TrainJob and MPIJob: from the submission to the end, with their operators played.

The API server checks the objects by the definitions of the operators; only rules in CEL are too new for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kube_cluster import KubeCluster
from kube_fixtures import Namespace, new_namespace
from kube_objects import has_condition, is_finished
from kube_operator_controllers import operators

from cloudtrain.contract import JobStatus
from cloudtrain.errors import TrainingFailed
from cloudtrain.job import Job
from cloudtrain.submission import prepare
from cloudtrain.sweep.plan import make_plan
from cloudtrain.sweep.start import create
from cloudtrain.sweep.trials import COMPLETED

pytestmark = pytest.mark.proof(
    "Kueue, JobSet, Kubeflow Trainer, MPI Operator",
    imitated="controllers of the tests, objects checked against their own definitions",
)

FOREIGN = ("PET_", "OMPI_MCA_orte_default", "OMPI_MCA_plm_rsh_args", "HYDRA_", "K_MPI")
"""The beginnings of variables with which operators set up their launchers."""
SCRIPT = f"""
import os, socket
foreign = [name for name in os.environ if name.startswith({FOREIGN})]
rank = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ["RANK"])
host = os.environ["SM_CURRENT_HOST"]
for name in __import__("json").loads(os.environ["SM_HOSTS"]):
    socket.gethostbyname(name)
print("rank", rank, "of", os.environ["WORLD_SIZE"], "on", host, "with", foreign)
"""
ONCE = """
import os, pathlib, time
with open("/data/runs", "a") as runs:
    runs.write("run\\n")
seen = pathlib.Path("/data", os.environ["RANK"])
if not seen.exists():
    seen.touch()
    print("first attempt", flush=True)
    time.sleep(600)
"""
"""The first attempt does not end by itself."""
PROCESSES = {"processes": {"enabled": True, "processes_per_host": 1}}
MPI = {"mpi": {"enabled": True, "processes_per_host": 2}}
VOLUMES = {"volumes": ["data:/data"]}


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


FAILS = """
import os
with open("/data/runs", "a") as runs:
    runs.write("rank " + os.environ["RANK"] + "\\n")
if os.environ["RANK"] == "0":
    raise SystemExit(3)
import time
time.sleep(600)
"""


def wait_for(kubernetes: Namespace, plural: str, condition: str) -> dict[str, Any]:
    """The job's main object, when it has a condition."""
    kubernetes.wait_until(
        lambda: has_condition(kubernetes.bench.get(plural, kubernetes.name, "job"), condition), condition
    )
    return kubernetes.bench.get(plural, kubernetes.name, "job")


@pytest.mark.parametrize(
    ("rendering", "plural", "done", "lines"),
    [
        ("auto", "jobsets", "Completed", {"job-node-0-1": "rank 1 of 2 on job-node-0-1 with []"}),
        ("trainjob", "trainjobs", "Complete", {"job-node-0-1": "rank 1 of 2 on job-node-0-1.job with []"}),
        ("mpijob", "mpijobs", "Succeeded", {"job-launcher": "[rank 3] rank 3 of 4 on job-worker-1 with []"}),
    ],
)
def test_a_job_runs(
    kubernetes: Namespace, tmp_path: Path, rendering: str, plural: str, done: str, lines: dict[str, str]
) -> None:
    """Its hosts find one another, and ranks see nothing of what operators prepare for their launchers."""
    distribution = MPI if rendering == "mpijob" else PROCESSES
    job, body = submit(tmp_path, SCRIPT, rendering, distribution=distribution)
    if rendering == "auto":
        assert (body["rendering"], body["objects"][0]["kind"]) == ("jobset", "JobSet")
        assert "rendering: trainjob or mpijob is possible, too" in body["why"]
    wait_for(kubernetes, plural, done)
    for host, line in lines.items():
        assert line in kubernetes.log(host)
    assert job.describe().status == JobStatus.COMPLETED
    shown = sorted(line.partition(" of ")[0] for line in job.logs().splitlines() if " of " in line)
    ranks = 4 if rendering == "mpijob" else 2
    assert shown == [f"[rank {rank}] rank {rank}" for rank in range(ranks)]


@pytest.mark.soak
@pytest.mark.parametrize("rendering", ["jobset", "trainjob", "mpijob"])
def test_a_sweep_of_jobs(kubernetes: Namespace, tmp_path: Path, rendering: str) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--rate')\n"
        "print(f'loss={parser.parse_args().rate}', flush=True)\n"
    )
    fields = {
        "entry_point": str(tmp_path / "train.py"),
        "image_uri": "python:3.12",
        "platform": "kubernetes",
        "instance_count": 2,
        "distribution": MPI if rendering == "mpijob" else PROCESSES,
        "metric_definitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
        "platform_options": {"discard_outputs": True, "rendering": rendering},
    }
    plan = make_plan("opt", {"rate": [0.3, 0.1, 0.2]}, "loss", sampler="grid", parallel=2)
    started = create(fields, plan)
    started.run_here()
    trials = started.trials
    assert [(trial.status, trial.value) for trial in trials.all] == [
        (COMPLETED, value) for value in (0.3, 0.1, 0.2)
    ]
    assert len(kubernetes.bench.list(f"{rendering}s", kubernetes.name)) == 3


@pytest.mark.soak
def test_a_jobset_starts_again_as_a_whole(kubernetes: Namespace, tmp_path: Path) -> None:
    """A preempted pod does not count, although no retries are allowed."""
    make_claim(kubernetes)
    job, _ = submit(tmp_path, ONCE + SCRIPT, "jobset", options=VOLUMES)
    for host in ("job-node-0-0", "job-node-0-1"):
        kubernetes.wait_for_line(host, "first attempt")
    first = {pod["metadata"]["uid"] for pod in kubernetes.pods}
    kubernetes.cluster.preempt(kubernetes.name, kubernetes.pod("job-node-0-1")["metadata"]["name"])
    status = wait_for(kubernetes, "jobsets", "Completed")["status"]
    assert (status["restarts"], status["restartsCountTowardsMax"]) == (1, 0)
    assert not first & {pod["metadata"]["uid"] for pod in kubernetes.pods}, "all pods are new"
    assert job.describe().status == JobStatus.COMPLETED


@pytest.mark.soak
@pytest.mark.parametrize("retries", [0, 1])
@pytest.mark.parametrize(
    ("rendering", "plural"), [("jobset", "jobsets"), ("trainjob", "trainjobs"), ("mpijob", "mpijobs")]
)
def test_failures_of_the_script_count(
    kubernetes: Namespace, tmp_path: Path, rendering: str, plural: str, retries: int
) -> None:
    """Also in a TrainJob, whose containers the kubelet restarts in place, and whose pods go with its failure."""
    make_claim(kubernetes)
    job, _ = submit(tmp_path, FAILS, rendering, options=VOLUMES, max_retry_attempts=retries)
    with pytest.raises(TrainingFailed):
        job.wait()
    status = wait_for(kubernetes, plural, "Failed")["status"]
    if rendering == "jobset":
        assert status.get("restartsCountTowardsMax", 0) == retries
    claims = kubernetes.cluster.kubelet.claims / kubernetes.name
    assert (claims / "data" / "runs").read_text().count("rank 0") == 1 + retries
    description = job.describe()
    assert description.status == JobStatus.FAILED
    assert description.failure is not None
    assert (description.failure.exit_code, description.failure.rank) == (3, 0)


@pytest.mark.soak
def test_the_launcher_of_an_mpijob_survives_the_loss_of_a_worker(
    kubernetes: Namespace, tmp_path: Path
) -> None:
    """It restarts in its pod: its Job would count a failed pod."""
    make_claim(kubernetes)
    job, _ = submit(tmp_path, ONCE + SCRIPT, "mpijob", distribution=MPI, options=VOLUMES)
    for rank in range(4):
        kubernetes.wait_for_line("job-launcher", f"[rank {rank}] first attempt")
    launcher = kubernetes.pod("job-launcher")["metadata"]["uid"]
    kubernetes.cluster.preempt(kubernetes.name, "job-worker-1")
    wait_for(kubernetes, "mpijobs", "Succeeded")
    for rank in range(4):
        line = f"[rank {rank}] rank {rank} of 4 on job-worker-{rank // 2} with []"
        assert line in kubernetes.log("job-launcher")
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
    [("jobset", "jobsets", True), ("trainjob", "trainjobs", False), ("mpijob", "mpijobs", False)],
)
def test_a_stop_ends_every_kind(
    kubernetes: Namespace, tmp_path: Path, rendering: str, plural: str, ended: bool
) -> None:
    """A JobSet is finished then, so that its TTL begins. The others are suspended."""
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


@pytest.mark.soak
@pytest.mark.parametrize("implementation", ["OpenMPI", "MPICH", "Intel"])
def test_an_mpijob_whose_launcher_is_a_worker(
    kubernetes: Namespace, tmp_path: Path, implementation: str
) -> None:
    """mpirun runs next to the variables, keys and hosts that the operator prepares for the one of the image."""
    options = {"launcher_as_worker": True, "mpi_implementation": implementation}
    submit(tmp_path, SCRIPT, "mpijob", distribution=MPI, options=options)
    wait_for(kubernetes, "mpijobs", "Succeeded")
    for rank, host in enumerate(("launcher", "launcher", "worker-0", "worker-0")):
        assert f"[rank {rank}] rank {rank} of 4 on job-{host} with []" in kubernetes.log("job-launcher")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("rendering", "plural", "done", "host"),
    [
        ("jobset", "jobsets", "Completed", "job-node-0-0"),
        ("trainjob", "trainjobs", "Complete", "job-node-0-0"),
        ("mpijob", "mpijobs", "Succeeded", "job-launcher"),
    ],
)
def test_kueue_starts_evicts_and_resumes(
    kubernetes: Namespace, tmp_path: Path, rendering: str, plural: str, done: str, host: str
) -> None:
    make_claim(kubernetes)
    distribution = MPI if rendering == "mpijob" else PROCESSES
    options = {**VOLUMES, "queue": "research"}
    job, _ = submit(tmp_path, ONCE + SCRIPT, rendering, distribution=distribution, options=options)

    def suspend(value: bool) -> None:
        spec = {"runPolicy": {"suspend": value}} if rendering == "mpijob" else {"suspend": value}
        kubernetes.bench.patch(plural, kubernetes.name, "job", {"spec": spec})

    time.sleep(0.5)
    assert kubernetes.pods == [] and job.describe().status == JobStatus.PENDING
    suspend(False)
    kubernetes.wait_for_line(host, "first attempt")
    suspend(True)
    kubernetes.wait_until(lambda: all(map(is_finished, kubernetes.pods)), "the eviction")
    suspend(False)
    wait_for(kubernetes, plural, done)
    assert job.describe().status == JobStatus.COMPLETED
