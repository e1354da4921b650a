"""A job whose folder fails for a moment, or loses a file, has not ended; it can be stopped."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from failing_files import failing, run_failing
from local_jobs import Run, folder, wait_for_end, wait_until

from cloudtrain import FailureClass, Job, JobStatus
from cloudtrain.runtime.supervisor.folder import LOCK, RECORD, STOP_MARK, SUMMARY
from cloudtrain.runtime.supervisor.record import LARGEST

WAITS = """
    import os, time
    print("ready", flush=True)
    while not os.path.exists(os.environ["SAGEMAKER_BASE_DIR"] + "/go"):
        time.sleep(0.05)
"""
ERRORS = ["EIO", "ESTALE", "ETIMEDOUT", "EAGAIN", "ENOTCONN"]


def start(run: Run) -> Job:
    job = run(WAITS, wait=False, stop_grace=5)
    wait_until(lambda: "ready" in job.logs(), "the script")
    return job


def go(job: Job) -> None:
    (folder(job).host("algo-1").base / "go").touch()


def supervisor(job: Job) -> int:
    pid = folder(job).read_record().pid
    assert pid
    return pid


def runtime(job: Job) -> int:
    pid = supervisor(job)
    [child] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def test_a_removed_lock_ends_nothing(run: Run) -> None:
    job = start(run)
    lock = folder(job).path / LOCK
    os.kill(supervisor(job), signal.SIGSTOP)
    lock.unlink()
    assert job.status == JobStatus.RUNNING
    assert not lock.exists()
    os.kill(supervisor(job), signal.SIGCONT)
    wait_until(folder(job).is_locked, "a new lock")
    lock.unlink()
    lock.symlink_to("/dev/null")
    assert job.status == JobStatus.RUNNING
    job.stop()
    assert wait_for_end(job).status == JobStatus.STOPPED


def test_without_a_lock_a_killed_supervisor_is_found(run: Run) -> None:
    job = start(run)
    pid = supervisor(job)
    os.kill(pid, signal.SIGSTOP)
    (folder(job).path / LOCK).unlink()
    os.kill(pid, signal.SIGKILL)
    wait_for_end(job)
    assert job.failure
    assert job.failure.failure_class == FailureClass.KILLED


@pytest.mark.parametrize("error", ERRORS)
def test_a_folder_that_fails_for_a_moment_ends_no_job(run: Run, error: str) -> None:
    job = start(run)
    files = folder(job)
    paths = [files.path, files.path / LOCK, files.path / RECORD, files.stop_mark, files.events, files.log]
    [run_folder] = files.host("algo-1").base.glob("run/*")
    ranks = [run_folder, *(path for path in run_folder.iterdir() if path.is_file())]
    with failing([supervisor(job), runtime(job)], [*paths, *ranks], error):
        seen = run_failing(["describe", job.name, "--json"], paths, error, "1")
    assert (seen.returncode, seen.stderr) == (0, "")
    assert json.loads(seen.stdout)["status"] == "Running"
    go(job)
    assert wait_for_end(job).status == JobStatus.COMPLETED, job.failure


def test_a_folder_that_always_fails_is_one_error(run: Run) -> None:
    job = start(run)
    record = [folder(job).path / RECORD, folder(job).path / STOP_MARK]
    done = run_failing(["describe", job.name], record, "EIO")
    assert (done.returncode, done.stdout) == (1, "")
    assert "state.json cannot be read: Input/output error" in done.stderr
    assert "Traceback" not in done.stderr
    done = run_failing(["stop", job.name], [folder(job).path / LOCK], "EIO")
    assert (done.returncode, "lock cannot be opened" in done.stderr) == (1, True), done.stderr
    assert job.status == JobStatus.RUNNING
    go(job)
    assert wait_for_end(job).status == JobStatus.COMPLETED


def test_a_summary_that_is_too_large_is_made_again(run: Run) -> None:
    job = run("print('on')")
    os.truncate(os.open(folder(job).path / SUMMARY, os.O_CREAT | os.O_RDWR), LARGEST + 1)
    os.truncate(os.open(folder(job).path / "description.json", os.O_CREAT | os.O_RDWR), LARGEST + 1)
    assert job.describe().status == JobStatus.COMPLETED
    assert job.describe().phases
