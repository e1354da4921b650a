"""Records of jobs, with the facts that Slurm adds. Its commands are programs that print recorded text."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from slurm_texts import HEADER, NO_CONTROLLER, NO_JOB, SACCT, SQUEUE, Programs

from cloudtrain.contract import FailureClass, JobStatus
from cloudtrain.contract.preemption import PREEMPT, STOP
from cloudtrain.errors import JobNotFound, PlatformError
from cloudtrain.platforms.batch.cluster import Cluster, LocalBatchRoot
from cloudtrain.platforms.batch.shell import LocalShell
from cloudtrain.platforms.batch.submitting import is_same, recorded
from cloudtrain.platforms.slurm.jobs import SlurmJobs
from cloudtrain.platforms.slurm.squeue import QueueRow, signs
from cloudtrain.platforms.supervised import JobFiles, JobRecord
from cloudtrain.platforms.supervised.root import LocalRoot
from cloudtrain.runtime.supervisor.record import SIGNAL
from cloudtrain.runtime.supervisor.submissions import Submission

LONG_AGO = 1795390000.0
ENDED = JobRecord(
    JobStatus.INTERRUPTED, LONG_AGO, started_at=LONG_AGO, ended_at=LONG_AGO + 60, exit_code=143, reason=SIGNAL
)


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    programs = Programs(tmp_path / "bin")
    programs.says("squeue", SQUEUE)
    programs.says("sacct", SACCT)
    return programs


@pytest.fixture
def life(programs: Programs, tmp_path: Path) -> SlurmJobs:
    root = LocalBatchRoot("slurm", tmp_path / "jobs")
    return SlurmJobs(Cluster(LocalShell(programs.environ), root, str(tmp_path)), poll_seconds=60)


def job_of(folder: Path, *numbers: str) -> JobFiles:
    root = LocalRoot("slurm", folder)
    job = JobFiles(root, root.create("a-job")).publish("a-job")
    submissions = [{"number": number, "cluster": "", "time": LONG_AGO, "attempt": 0} for number in numbers]
    job.write("batch.json", json.dumps({"submissions": submissions}).encode())
    job.write_record(JobRecord(JobStatus.PENDING, LONG_AGO))
    return job


@pytest.mark.parametrize(
    ("number", "status", "failure_class", "reason"),
    [
        (
            "18",
            JobStatus.INTERRUPTED,
            FailureClass.TIME_LIMIT,
            "ended by the scheduler's time limit",
        ),
        (
            "21",
            JobStatus.INTERRUPTED,
            FailureClass.PREEMPTED,
            "preempted",
        ),
        ("12", JobStatus.STOPPED, None, "an administrator (root) cancelled the job in Slurm"),
        ("14", JobStatus.INTERRUPTED, None, SIGNAL),  # the signal was not Slurm's
        ("1", JobStatus.INTERRUPTED, None, SIGNAL),  # it is still ending
    ],
)
def test_a_signal_from_outside_is_explained(
    life: SlurmJobs,
    tmp_path: Path,
    number: str,
    status: JobStatus,
    failure_class: FailureClass | None,
    reason: str,
) -> None:
    record = life.explained(ENDED, job_of(tmp_path / "jobs", number))
    assert record.status == status
    assert record.reason.startswith(reason)
    assert (record.failure and record.failure.failure_class) == failure_class


@pytest.mark.parametrize(
    ("number", "status"),
    [("1", JobStatus.STOPPING), ("12", JobStatus.STOPPED), ("14", JobStatus.INTERRUPTED)],
)
def test_a_job_that_has_just_ended_waits_for_the_reason_of_slurm(
    life: SlurmJobs, tmp_path: Path, number: str, status: JobStatus
) -> None:
    assert (
        life.explained(replace(ENDED, ended_at=time.time()), job_of(tmp_path / "jobs", number)).status
        == status
    )


def test_a_stop_whose_mark_is_written_late_is_a_stop(
    life: SlurmJobs, programs: Programs, tmp_path: Path
) -> None:
    job = job_of(tmp_path / "jobs", "18")
    job.write("stop", b"")
    record = life.explained(ENDED, job)
    assert (record.status, record.reason) == (JobStatus.STOPPED, "stopped by the user")
    assert programs.calls() == []


def test_a_final_record_needs_no_scheduler(life: SlurmJobs, programs: Programs, tmp_path: Path) -> None:
    job = job_of(tmp_path / "jobs", "18")
    record = JobRecord(
        JobStatus.COMPLETED, LONG_AGO, started_at=LONG_AGO, ended_at=LONG_AGO + 60, exit_code=0
    )
    assert life.explained(record, job) is record
    assert [state.name for state in life.states_of(record, job)] == ["Pending", "Running", "Completed"]
    assert programs.calls() == []


def test_of_several_submissions_the_one_that_runs_counts(life: SlurmJobs, tmp_path: Path) -> None:
    standing = life.standing(job_of(tmp_path / "jobs", "14", "1", "7"))
    assert standing.row and standing.row.number == "1"
    standing = life.standing(job_of(tmp_path / "others", "7", "2"))
    assert standing.row and standing.row.number == "2"  # the other one waits for it


def test_states_change_only_with_news(life: SlurmJobs, programs: Programs, tmp_path: Path) -> None:
    job, record = job_of(tmp_path / "jobs", "2"), JobRecord(JobStatus.PENDING, LONG_AGO)
    queue = life.queue()

    def state_with(start: float, reason: str = "Priority") -> tuple[float, str]:
        programs.says(
            "squeue", HEADER + f"2|N/A|PENDING|{start:.0f}|N/A|1|7|main|2||a-job|/jobs/a-job|{reason}\n"
        )
        queue.expire()
        [state] = life.states_of(record, job)
        return state.time, state.message

    start = time.time() + 7200
    first = state_with(start)
    assert first[0] == LONG_AGO
    assert "jobs of a higher priority wait before it" in first[1]
    assert "Slurm plans to start it at" in first[1]
    assert state_with(start + 60) == first  # every pass of the scheduler moves it
    later = state_with(start + 3600)
    assert later != first
    assert "in use" in state_with(start + 3600, "Resources")[1]


def test_a_stop_without_an_answer_is_reported_and_sent_once(
    life: SlurmJobs, programs: Programs, tmp_path: Path
) -> None:
    programs.says("scancel", error=NO_CONTROLLER, code=1)
    job = job_of(tmp_path / "jobs", "2", "3")
    with pytest.raises(PlatformError, match="Unable to contact slurm controller") as failed:
        life.signal(job, STOP)
    assert "cloudtrain stop a-job" in failed.value.hint
    assert len(programs.calls("scancel")) == 1  # each takes many seconds
    programs.says(
        "scancel", error="scancel: error: Kill job error on job id 2: Invalid job id specified", code=1
    )
    life.signal(job, STOP)  # it has ended just before
    programs.says("scancel")
    life.signal(job, PREEMPT)
    assert "--signal=USR1" in programs.calls("scancel")[-1]


def test_another_job_with_the_number_is_left_alone(
    life: SlurmJobs, programs: Programs, tmp_path: Path
) -> None:
    """A controller that has lost its state gives the same numbers again."""
    job = job_of(tmp_path / "jobs", "2", "18")
    for text in (SQUEUE, SACCT):
        other = text.replace("a-job", "theirs")
        programs.says("squeue" if text == SQUEUE else "sacct", other)
    assert not life.standing(job).is_alive
    assert life.explained(ENDED, job) is ENDED
    life.signal(job, STOP)
    life.signal(job, PREEMPT)
    assert programs.calls("scancel") == []
    request = {"requeue": "auto", "max_preemptions": 3}
    record = JobRecord(JobStatus.RUNNING, LONG_AGO, started_at=LONG_AGO)
    assert not life.is_to_continue(job_of(tmp_path / "others", "21"), record, request)


@pytest.mark.parametrize(
    ("number", "mark", "is_to_continue"),
    [("14", "14", True), ("14", "", False), ("14", "13", False), ("12", "12", False), ("99", "", False)],
    ids=["interrupted", "unknown", "earlier", "cancelled", "forgotten"],
)
def test_a_job_continues_only_if_its_batch_step_requested_it(
    life: SlurmJobs, programs: Programs, tmp_path: Path, number: str, mark: str, is_to_continue: bool
) -> None:
    """It was not cancelled since: Slurm forgets such a job after some minutes."""
    programs.says("scontrol", error=NO_JOB, code=1)
    job = job_of(tmp_path / "jobs", number)
    job.write("interrupted", mark.encode())
    record = JobRecord(JobStatus.PENDING, LONG_AGO, started_at=LONG_AGO)
    job.write_record(record)
    request = {"requeue": "auto", "max_preemptions": 3}
    assert life.is_to_continue(job, record, request) == is_to_continue
    if number == "99":
        assert "has left it" in life.lost(job).message


@pytest.mark.parametrize(
    ("name", "folder", "job_name", "number"),
    [
        ("renamed", "/jobs/a-job", "a-job", "1"),
        ("sweep", "/tmp", "sweep-3", "1_3"),
        ("renamed", "/jobs/sweep-0", "sweep-3", "1_3"),
        ("", "", "a-job", "1"),
    ],
)
def test_a_job_is_found_by_its_name_or_its_folder(name: str, folder: str, job_name: str, number: str) -> None:
    assert is_same(QueueRow("1", "RUNNING", name=name, folder=folder), *signs(job_name, number))
    assert not is_same(QueueRow("1", "RUNNING", name="sweep", folder="/jobs/sweep-0"), *signs("sweep-3", "1"))


def test_a_job_without_a_number_is_being_submitted_for_a_while(life: SlurmJobs, tmp_path: Path) -> None:
    job = job_of(tmp_path / "jobs")
    assert not life.standing(job).is_alive
    assert "the job was never submitted" in life.lost(job).message
    job.write_record(JobRecord(JobStatus.PENDING, time.time()))
    assert life.standing(job).is_alive


def test_only_a_job_that_never_got_into_the_queue_is_taken_back(
    life: SlurmJobs, programs: Programs, tmp_path: Path
) -> None:
    job = job_of(tmp_path / "jobs")
    job.write("request.json", b"{}")
    job.write_record(JobRecord(JobStatus.PENDING, time.time()))
    assert not life.withdraw("a-job"), "it may still be on its way"
    programs.says("squeue", error=NO_CONTROLLER, code=1)
    job.write_record(JobRecord(JobStatus.PENDING, LONG_AGO))
    life.queue().renew()
    assert not life.withdraw("a-job"), "Slurm does not answer"
    programs.says("squeue", SQUEUE)
    life.queue().renew()
    assert life.withdraw("a-job")
    assert not life.has("a-job")
    with pytest.raises(JobNotFound):
        life.was_interrupted("a-job")
    assert not list((tmp_path / "jobs").iterdir())


def test_a_job_whose_number_the_client_never_got(life: SlurmJobs, tmp_path: Path) -> None:
    job = job_of(tmp_path / "jobs")
    assert not life.standing(job).is_alive
    assert "the job was never submitted" in life.lost(job).message
    job.write("submitted.out", b"a line of a site's wrapper\n18;theta\n")
    job.write("request.json", b"{}")
    assert not life.withdraw("a-job")
    assert recorded(job) == [Submission("18", "theta", LONG_AGO)]
    assert life.lost(job).failure_class == FailureClass.TIME_LIMIT
