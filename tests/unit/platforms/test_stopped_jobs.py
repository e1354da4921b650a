"""A job that was asked to end: what happens to its hosts then is a warning, and no failure."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from supervised_programs import REQUEST, run_programs

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.observe import EventLog
from cloudtrain.platforms.local import LocalPlatform
from cloudtrain.platforms.supervised.root import LocalRoot
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.record import STOPPED_BY_USER, JobRecord
from cloudtrain.runtime.supervisor.supervise import SIGNAL

RUN = "while :; do sleep 0.02; done"
ENDS = f"trap 'exit 143' TERM; {RUN}"
"""A runtime that ends as it should."""
IS_KILLED = f"trap 'kill -KILL $$' TERM; touch stop; {RUN}"
"""A runtime that is killed during the stop."""
LOSES = f"trap 'sleep 0.3; exit 1' TERM; {RUN}"
"""A runtime that reports during the stop that it has lost another host."""

LOST = FailureReport.host_lost("algo-2", "its connection was closed", 1.0)
KILLED = FailureReport(FailureClass.KILLED, "", rank=0, host="algo-1", exit_code=137, signal=9)


def test_the_programs_stop_with_the_mark_of_a_stop(tmp_path: Path) -> None:
    assert JobFolder(tmp_path).stop_mark == tmp_path / "stop"


@pytest.mark.parametrize(
    ("leader", "reports"), [(ENDS, {}), (LOSES, {"algo-1": LOST})], ids=["crash", "report"]
)
def test_a_host_that_is_lost_during_a_stop(
    leader: str, reports: dict[str, FailureReport], tmp_path: Path
) -> None:
    record, warnings = run_programs(tmp_path, {"algo-1": leader, "algo-2": IS_KILLED}, reports)
    assert (record.status, record.reason, record.failure) == (JobStatus.STOPPED, STOPPED_BY_USER, None)
    assert record.exit_code == 143
    [warning] = warnings
    assert warning.startswith("host algo-2 was lost: ")
    assert warning.endswith("The job was ending: what was not saved by then is lost")


def test_a_job_that_would_have_been_retried_is_stopped(tmp_path: Path) -> None:
    commands = {"algo-1": "touch stop; exit 137", "algo-2": ENDS}
    record, warnings = run_programs(tmp_path, commands, {"algo-1": KILLED}, max_retry_attempts=1)
    assert (record.status, record.reason, record.failure) == (JobStatus.STOPPED, STOPPED_BY_USER, None)
    assert warnings == ["before the stop, this attempt failed: rank 0 on algo-1 was killed by SIGKILL"]


def test_a_job_that_had_failed_for_good_before_it_was_stopped_is_failed(tmp_path: Path) -> None:
    commands = {"algo-1": "touch stop; exit 137", "algo-2": ENDS}
    record, warnings = run_programs(tmp_path, commands, {"algo-1": KILLED})
    assert (record.status, record.failure, warnings) == (JobStatus.FAILED, KILLED, [])


def test_a_signal_after_a_preemption_is_the_reason(tmp_path: Path) -> None:
    def end() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    commands = {"algo-1": f'trap "exit 143" TERM; kill -USR1 $PPID; {RUN}'}
    record, _ = run_programs(tmp_path, commands, {}, end, host_count=1)
    assert (record.status, record.reason, record.failure) == (JobStatus.INTERRUPTED, SIGNAL, None)


def make_stopped_job(status: JobStatus) -> JobFolder:
    folder = JobFolder.of("local", "job")
    folder.path.mkdir(parents=True)
    (folder.path / "request.json").write_text(json.dumps(REQUEST))
    folder.write_record(JobRecord(status, 1.0, started_at=2.0))
    folder.stop_mark.touch()
    return folder


def test_a_job_is_stopping_while_its_supervisor_has_not_seen_the_stop() -> None:
    """A supervisor that uploads the outputs of containers records it only afterwards."""
    lock = make_stopped_job(JobStatus.RUNNING).lock()  # as its supervisor does
    assert lock is not None
    try:
        assert LocalPlatform().describe("job").status == JobStatus.STOPPING
    finally:
        os.close(lock)
    assert LocalPlatform().describe("job").status == JobStatus.STOPPED


def test_a_job_whose_supervisor_is_killed_during_a_stop() -> None:
    make_stopped_job(JobStatus.STOPPING)
    job = LocalPlatform().describe("job")
    assert (job.status, job.reason, job.failure) == (JobStatus.STOPPED, STOPPED_BY_USER, None)
    [warning] = job.warnings
    assert "the supervisor of the job is gone" in warning
    assert warning.endswith("The job was ending: what was not saved by then is lost")


class OtherRoot:
    """A root that is not on this machine: its files have no times."""

    def __init__(self, root: LocalRoot) -> None:
        self._root = root

    def __getattr__(self, name: str) -> Any:
        return getattr(self._root, name)


def test_a_job_elsewhere_ends_with_its_last_event() -> None:
    folder = JobFolder.of("local", "job")
    folder.path.mkdir(parents=True)
    (folder.path / "request.json").write_text(json.dumps(REQUEST))
    folder.write_record(JobRecord(JobStatus.RUNNING, 1.0, started_at=2.0))
    EventLog(folder.events, "supervisor", clock=lambda: 7.0).emit("attempt", attempt=0)
    platform = LocalPlatform()
    platform._root = OtherRoot(LocalRoot("local"))
    assert platform.describe("job").ended_at == 7.0
