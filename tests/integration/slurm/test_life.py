"""Jobs in the queue of a real Slurm: why they wait, how they are stopped, and a controller that is away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from slurm_cluster import Configuration, SlurmCluster

from cloudtrain import Estimator, Job
from cloudtrain.contract import JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.slurm import SlurmPlatform

pytestmark = pytest.mark.proof("Slurm", real="22.05.8 with slurmdbd, several nodes on one machine")

SCRIPT = """
import signal, sys, time

def stop(*_):
    print("saving", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, stop)
for step in range(600):
    print("step", step, flush=True)
    time.sleep(0.1)
    if step == 2 and sys.argv[-1] == "short":
        break
"""


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)

    def submit(name: str, what: str = "long", **options: object) -> Job:
        return Estimator(
            str(script),
            platform="slurm",
            instance_count=2,
            distribution={"processes": {"processes_per_host": 1}},
            hyperparameters={"what": what},
            environment={"A_TOKEN": "hf_s3cret"},
            platform_options={"poll_seconds": 1, **options},
        ).fit(wait=False, job_name=name)

    return submit


def until(is_true: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture
def full(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """A cluster whose nodes are all in use."""
    number = slurm.submit("sleep 600", "--nodes=2", "--exclusive")
    slurm.wait(number, "RUNNING")
    yield slurm


def test_a_waiting_job_shows_why_and_since_when_and_can_be_stopped(
    full: SlurmCluster, submit: Callable[..., Job]
) -> None:
    job = submit("waits")
    until(lambda: "in use" in job.describe().reason and "starts" in job.describe().details)
    described = job.describe()
    assert described.status == JobStatus.PENDING
    assert described.details["place"] == "1 of 1 waiting in partition main"
    assert "as Slurm plans now" in described.details["starts"]
    [state] = job.platform.states("waits")  # type: ignore[attr-defined]
    assert state.name == "Pending"
    assert state.message.startswith(
        "the nodes, CPUs or GPUs that it asks for are in use. Slurm plans to start it at"
    )
    other = submit("held", sbatch={"hold": True})
    until(lambda: "scontrol release" in other.describe().reason)
    assert "place" not in other.describe().details
    assert {one.name: one.reason for one in SlurmPlatform().list()} == {
        "waits": described.reason,
        "held": other.describe().reason,
    }
    for one in (job, other):
        one.stop()
        assert one.wait(120).describe().status == JobStatus.STOPPED
    assert set(full.jobs().values()) == {"RUNNING", "CANCELLED"}


def test_no_secret_is_left_of_a_job_that_never_started(
    full: SlurmCluster, submit: Callable[..., Job], tmp_path: Path
) -> None:
    job = submit("secretive")
    [secrets] = tmp_path.rglob("secrets.json")
    assert "hf_s3cret" in secrets.read_text()
    full("scancel", "--name=secretive")
    assert job.wait(120).describe().status == JobStatus.STOPPED
    assert "hf_s3cret" not in secrets.read_text()


@pytest.fixture
def impatient(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """A cluster whose commands wait for 4 s for a controller that is away, and not 18 s."""
    with SlurmCluster(Configuration(lines=("MessageTimeout=2",), name="impatient")) as cluster:
        monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
        yield cluster


def test_a_controller_that_is_away_disturbs_no_watcher(
    impatient: SlurmCluster, submit: Callable[..., Job]
) -> None:
    slurm = impatient
    job = submit("watched")
    lines: list[str] = []
    follower = threading.Thread(target=lambda: lines.extend(job.follow()))
    follower.start()
    until(lambda: "[rank 1] step 1" in lines)
    slurm.stop_controller()
    time.sleep(1.2)  # the next question gets no answer
    assert job.describe().status == JobStatus.RUNNING
    with pytest.raises(
        PlatformError, match=r"Slurm did not take the stop of job watched: .*ontroller"
    ) as failed:
        job.stop()
    assert "if it runs, it stops now" in failed.value.hint
    until(lambda: job.describe().status.is_final)  # it saw the mark in its folder; no scheduler is needed
    follower.join(120)
    assert not follower.is_alive()
    assert job.describe().status == JobStatus.STOPPED
    assert {"[rank 0] saving", "[rank 1] saving"} <= set(lines)
    assert [one.status for one in SlurmPlatform().list()] == [JobStatus.STOPPED]


def test_running_jobs_are_stopped_and_cancelled_with_their_grace(
    slurm: SlurmCluster, submit: Callable[..., Job]
) -> None:
    job, other = submit("stopped"), submit("cancelled")
    until(lambda: all("[rank 1] step 1" in one.logs() for one in (job, other)))
    until(lambda: all("nodes" in one.describe().details for one in (job, other)))
    slurm("scancel", other.describe().details["slurm job"])
    assert job.describe().details["nodes"] == "127.0.0.[2-3]"
    job.stop()
    described = job.wait(120).describe()
    assert (described.status, described.reason) == (JobStatus.STOPPED, "stopped by the user")
    assert "[rank 1] saving" in job.logs()
    names = [state.name for state in job.platform.states("stopped")]  # type: ignore[attr-defined]
    assert names == ["Pending", "Running", "Stopped"]

    until(lambda: "cancelled" in other.describe().reason)
    described = other.describe()
    assert (described.status, described.reason) == (JobStatus.STOPPED, "the job was cancelled in Slurm")
