"""Many jobs of one description as one array of a real Slurm: each is a job like any other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from slurm_cluster import Configuration, SlurmCluster
from slurm_fixtures import SlurmOf
from slurm_jobs import wait_for_line, wait_until

from cloudtrain import Estimator, Job
from cloudtrain.cli import cli
from cloudtrain.contract import JobStatus
from cloudtrain.errors import InvalidJob, JobExists, JobNotFound, PlatformError, TrainingFailed
from cloudtrain.index import list_jobs
from cloudtrain.platforms.slurm import SlurmPlatform

SCRIPT = """
import os, sys, time
number, what = sys.argv[1], os.environ.get("WHAT", "")
print("element", number, os.environ["CLOUDTRAIN_JOB_NAME"], os.environ.get("A_TOKEN"), flush=True)
if what == "fail":
    raise ValueError(number)
if what == "sleep":
    time.sleep(600)
if what == "nap" and os.environ["CLOUDTRAIN_ATTEMPT"] == "0":
    time.sleep(5)
if what == "once":
    marker = os.path.join(os.environ["MARKS"], number)
    if not os.path.exists(marker):
        open(marker, "w").close()
        sys.exit(9)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path))
    (tmp_path / "train.py").write_text(SCRIPT)
    yield tmp_path


def start(home: Path, values: Any, *, retries: int = 0, **options: Any) -> list[Job]:
    estimator = Estimator(
        str(home / "train.py"),
        platform="slurm",
        environment={"A_TOKEN": "hf_s3cret", "MARKS": str(home)},
        max_retry_attempts=retries,
        platform_options={"poll_seconds": 1, **options},
    )
    return estimator.fit_array(values, job_name="sweep")


def element(number: int, what: str = "") -> dict[str, Any]:
    return {"arguments": [str(number)], "environment.WHAT": what}


def number(home: Path, name: str) -> str:
    return str(
        json.loads((home / "jobs" / "slurm" / name / "batch.json").read_text())["submissions"][0]["number"]
    )


def test_elements_are_jobs_of_one_array(slurm: SlurmCluster, home: Path) -> None:
    whats = ["", "fail", "sleep", "once"]
    values = [element(one, what) for one, what in enumerate(whats)]
    jobs = start(home, values, array_parallelism=3, retries=1)
    assert [job.name for job in jobs] == [f"sweep-{one}" for one in range(4)]
    array = number(home, "sweep-0").partition("_")[0]
    assert [number(home, job.name) for job in jobs] == [f"{array}_{one}" for one in range(4)]
    assert {entry.name for entry in list_jobs()} == {job.name for job in jobs}

    assert jobs[0].wait().logs().splitlines()[0] == "[rank 0] element 0 sweep-0 hf_s3cret"
    with pytest.raises(TrainingFailed, match="ValueError: 1"):
        jobs[1].wait()
    retried = jobs[3].wait().describe()
    assert (retried.status, retried.attempt) == (JobStatus.COMPLETED, 1)
    wait_for_line(jobs[2], "element 2")
    done = CliRunner().invoke(cli, ["stop", "sweep-*"])
    assert (done.exit_code, done.stdout) == (0, "sweep-2: Stopped\n")
    assert {found.name for found in SlurmPlatform().list()} == {job.name for job in jobs}
    for job in jobs:
        folder = home / "jobs" / "slurm" / job.name
        secrets = folder / "secrets.json"
        wait_until(lambda secrets=secrets: not secrets.exists(), f"the end of {job.name}")
        assert f"--job-name={job.name}" in (folder / "job.sh").read_text()


def test_elements_in_the_queue_are_stopped(slurm: SlurmCluster, home: Path) -> None:
    jobs = start(home, [element(one, "sleep") for one in range(3)], array_parallelism=1)
    wait_until(lambda: jobs[0].status == JobStatus.RUNNING, "the first element")
    assert jobs[1].status == jobs[2].status == JobStatus.PENDING
    jobs[1].stop()
    assert jobs[1].status == JobStatus.STOPPED
    assert b"s3cret" not in (home / "jobs" / "slurm" / "sweep-1" / "secrets.json").read_bytes()
    assert slurm("squeue", "--noheader", "--array", "--format=%K %t").split("\n") == ["2 PD", "0 R"]
    assert jobs[2].status == JobStatus.PENDING
    done = CliRunner().invoke(cli, ["stop", "sweep-*", "--json"])
    assert [job["status"] for job in json.loads(done.stdout)] == ["Stopped", "Stopped"]


def test_a_cluster_without_arrays(slurm_of: SlurmOf, home: Path) -> None:
    slurm_of(Configuration(nodes=1, lines=("MaxArraySize=0",)))
    with pytest.raises(PlatformError, match=r"has job arrays disabled \(MaxArraySize=0\)") as caught:
        start(home, [element(0), element(1)])
    assert caught.value.hint == "Submit the jobs one by one."


def test_what_cannot_be_an_array_leaves_nothing(slurm_of: SlurmOf, home: Path) -> None:
    slurm_of(Configuration(nodes=1, lines=("MaxArraySize=4",)))
    with pytest.raises(
        InvalidJob, match="element 1 asks Slurm for something else than element 0: #SBATCH --nodes=2"
    ):
        start(home, {"instance_count": [1, 2]})
    with pytest.raises(PlatformError, match="invalid partition"):
        start(home, [element(0), element(1)], partition="none")
    with pytest.raises(PlatformError, match=r"at most 4 elements \(MaxArraySize\)"):
        start(home, [element(one) for one in range(5)])
    start(home, [element(0)])
    with pytest.raises(JobExists):
        start(home, [element(0), element(1)])
    with pytest.raises(JobNotFound):
        SlurmPlatform().describe("sweep-1")
    assert [entry.name for entry in list_jobs()] == ["sweep-0"]


@pytest.mark.soak
def test_an_element_continues_after_a_preemption(slurm: SlurmCluster, home: Path) -> None:
    """Alone: the other one runs on."""
    jobs = start(home, [element(one, "nap") for one in range(2)])
    wait_for_line(jobs[1], "element 1")
    jobs[1].preempt()
    described = [job.wait().describe() for job in jobs]
    assert [(one.status, one.attempt) for one in described] == [
        (JobStatus.COMPLETED, 0),
        (JobStatus.COMPLETED, 1),
    ]
    assert number(home, "sweep-1").endswith("_1")
