"""Jobs that left no outcome, on a real Slurm with and without accounting: Slurm explains how they ended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import Configuration, SlurmCluster
from slurm_fixtures import SlurmOf

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.platforms.batch.cluster import Cluster, LocalBatchRoot
from cloudtrain.platforms.batch.shell import LocalShell
from cloudtrain.platforms.slurm.jobs import SlurmJobs
from cloudtrain.platforms.supervised import JobFiles, JobRecord


class Watched:
    """Jobs of Slurm whose batch steps write no outcome, as if they were killed."""

    def __init__(self, slurm: SlurmCluster, folder: Path) -> None:
        self._slurm = slurm
        self._root = LocalBatchRoot("slurm", folder)
        self._life = SlurmJobs(Cluster(LocalShell(slurm.env), self._root, str(folder)), poll_seconds=0.5)

    def submit(self, script: str, *options: str) -> tuple[int, JobFiles]:
        name = f"job-{len(self._root.names())}"
        number = self._slurm.submit(script, "--no-requeue", f"--job-name={name}", *options)
        job = JobFiles(self._root, self._root.create(name)).publish(name)
        job.write_record(JobRecord(JobStatus.RUNNING, time.time() - 60))
        submission = {"number": str(number), "cluster": "", "time": time.time() - 60, "attempt": 0}
        job.write("batch.json", json.dumps({"submissions": [submission]}).encode())
        job.write("supervisor.log", b"its last line\n")
        return number, job

    def ended(self, job: JobFiles) -> FailureReport:
        deadline = time.monotonic() + 60
        while self._life.standing(job).is_alive:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return self._life.lost(job)


@pytest.fixture(params=[False, True], ids=["no-accounting", "accounting"])
def slurm(request: pytest.FixtureRequest, slurm_of: SlurmOf) -> SlurmCluster:
    return slurm_of(Configuration(accounting=request.param))


@pytest.fixture
def watched(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Watched]:
    yield Watched(slurm, tmp_path)


def wait_for_names(slurm: SlurmCluster, *numbers: int) -> None:
    """The accounting learns who cancelled a job a moment after the job has ended."""
    deadline = time.monotonic() + 120
    jobs = ",".join(map(str, numbers))
    query = ("sacct", "-X", "--noheader", "--format=State%60", "--jobs", jobs)
    while (states := slurm(*query)).count(" by ") < len(numbers):
        assert time.monotonic() < deadline, states
        time.sleep(0.2)


def test_each_ending_is_explained(slurm: SlurmCluster, watched: Watched) -> None:
    exited = watched.submit("exit 7")
    killed = watched.submit("kill -9 $$")
    cancelled = watched.submit("sleep 600")
    lost = watched.submit("sleep 600", "--nodelist=127.0.0.3")
    queued = watched.submit("sleep 600", "--begin=now+1hour")
    slurm.wait(cancelled[0], "RUNNING")
    slurm.wait(lost[0], "RUNNING")
    slurm("scancel", str(cancelled[0]), str(queued[0]))
    slurm.set_down("127.0.0.3")
    if slurm.configuration.accounting:
        wait_for_names(slurm, cancelled[0], queued[0])

    report = watched.ended(exited[1])
    assert (report.failure_class, report.exit_code) == (FailureClass.PLATFORM, 7)
    assert report.message == "the batch step exited with code 7 and left no outcome: its last line"
    report = watched.ended(killed[1])
    assert (report.failure_class, report.signal, report.exit_code) == (FailureClass.KILLED, 9, 137)
    for _, job in (cancelled, queued):
        report = watched.ended(job)
        assert report.failure_class == FailureClass.KILLED
        if slurm.configuration.accounting:
            assert report.message.endswith("cancelled the job in Slurm")
            assert report.message.startswith(("user ", "an administrator (root) "))
        else:
            assert report.message == "the job was cancelled in Slurm"
    report = watched.ended(lost[1])
    assert (report.failure_class, report.message) == (
        FailureClass.HOST_LOST,
        "a node of the job failed (nodes: 127.0.0.3)",
    )
    assert "platform_options.exclude" in report.hint


@pytest.mark.soak
def test_preemption_is_recognised(slurm_cancels: SlurmCluster, tmp_path: Path) -> None:
    slurm, watched = slurm_cancels, Watched(slurm_cancels, tmp_path)
    number, job = watched.submit("sleep 600", "--nodes=2", "--exclusive")
    slurm.wait(number, "RUNNING")
    slurm.submit("sleep 1", "--nodes=2", "--exclusive", "--partition=urgent")
    assert watched.ended(job).failure_class == FailureClass.PREEMPTED


@pytest.mark.soak
def test_the_time_limit_of_slurm(slurm: SlurmCluster, watched: Watched) -> None:
    number, job = watched.submit("sleep 600")
    slurm.wait(number, "RUNNING")
    slurm.expire(number)
    report = watched.ended(job)
    assert report.failure_class == FailureClass.TIME_LIMIT
    assert report.message.startswith("ended by the scheduler's time limit")
