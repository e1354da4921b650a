"""Every ending on a disk without a free byte is reported as it is."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_jobs import Run, events, folder, live_processes, wait_for_end, wait_until

from cloudtrain import FailureClass, Job, JobStatus

FILL = """
    import os, signal, sys, time
    from cloudtrain.observe import beat

    def fill():
        fill = os.open(os.environ["SAGEMAKER_BASE_DIR"] + "/fill", os.O_CREAT | os.O_WRONLY)
        for size in (65536, 4096, 512, 1):
            try:
                while True:
                    os.write(fill, bytes(size))
            except OSError:
                pass

    print("on", flush=True)
    beat()
    fill()
    os.utime(os.environ["SAGEMAKER_BASE_DIR"] + "/fill", (1, 1))  # the sign for the test
"""

ENDINGS = {
    "completed": "print('x' * 10000)",
    "failed": "raise ValueError('y' * 100000)",
    "exit": "sys.exit(7)",
    "out of memory": "raise MemoryError('Unable to allocate 9 GiB')",
    "hang": "time.sleep(600)",
    "stopped": "time.sleep(600)",
    "preempted": "time.sleep(600)",
    "supervisor killed": "time.sleep(600)",
}


@pytest.fixture
def small_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All of cloudtrain's state on a file system of 8 MB."""
    small = tmp_path / "home"
    small.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", small], check=False
    ).returncode:
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", "a small file system cannot be mounted here"
        pytest.skip("mounting a file system needs root")
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(small))
    yield
    subprocess.run(["umount", "--lazy", small], check=True)


def is_filled(job: Job) -> bool:
    try:
        return (folder(job).host("algo-1").base / "fill").stat().st_mtime == 1
    except FileNotFoundError:
        return False


def end(run: Run, ending: str) -> Job:
    """Run a job that fills its disk and then ends in this way."""
    limits = {"hang_timeout": 5.0} if ending == "hang" else {}
    job = run(
        FILL + f"    {ENDINGS[ending]}\n",
        wait=False,
        platform="local",
        platform_options={"max_preemptions": 0},
        **limits,
    )
    if ending in ("stopped", "preempted", "supervisor killed"):
        wait_until(lambda: is_filled(job), "a full disk")
        supervisor = folder(job).read_record().pid
        assert supervisor
        if ending == "stopped":
            job.stop()
        elif ending == "preempted":
            job.preempt()
        else:
            os.kill(supervisor, signal.SIGKILL)
    return wait_for_end(job)


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_ending(ending: str, small_disk: None, run: Run) -> None:
    job = end(run, ending)
    check(job, ending)
    wait_until(lambda: not live_processes(job), "the end of all processes")
    wait_until(lambda: not list(folder(job).path.rglob("*spare*")), "the removal of the spare files")


@pytest.mark.parametrize("ending", ["completed", "failed", "stopped"])
def test_everything_on_the_full_disk(ending: str, small_home: None, run: Run) -> None:
    check(end(run, ending), ending)


def check(job: Job, ending: str) -> None:
    description = job.describe()
    failure = description.failure
    assert is_filled(job)
    if ending != "supervisor killed":
        warnings = "".join(description.warnings)
        assert "has less than 1 MB left" in warnings, description
    found = (description.status, description.exit_code, failure and failure.failure_class, description.reason)
    assert (
        found
        == {
            "completed": (JobStatus.COMPLETED, 0, None, ""),
            "failed": (JobStatus.FAILED, 1, FailureClass.USER_ERROR, ""),
            "exit": (JobStatus.FAILED, 7, FailureClass.USER_ERROR, ""),
            "out of memory": (JobStatus.FAILED, 1, FailureClass.OUT_OF_MEMORY, ""),
            "hang": (JobStatus.FAILED, 1, FailureClass.HANG, ""),
            "stopped": (JobStatus.STOPPED, 143, None, "stopped by the user"),
            "preempted": (JobStatus.INTERRUPTED, 143, FailureClass.PREEMPTED, "preempted"),
            "supervisor killed": (JobStatus.FAILED, 137, FailureClass.KILLED, ""),
        }[ending]
    )
    if ending in ("failed", "exit"):
        assert failure
        assert failure.exception_type == ("ValueError" if ending == "failed" else None)
        assert (
            f"The disk of {folder(job).host('algo-1').base} is full, which may be the cause" in failure.hint
        )
    if ending == "hang":
        assert failure
        assert "time.sleep" in failure.stacks or "rank 0" in failure.stacks


def test_the_log_of_a_full_disk_ends_no_rank(small_disk: None, run: Run) -> None:
    """Space comes back before the end: the warning names what was lost."""
    job = run(
        """
        import os
        for _ in range(8000):
            print("x" * 1000)
        os.remove(os.environ["SAGEMAKER_BASE_DIR"] + "/output/logs/rank-0.log")
        os.truncate(os.environ["SAGEMAKER_BASE_DIR"] + "/../../job.log", 0)
        print("done")
        """
    )
    assert job.status == JobStatus.COMPLETED
    assert "done" in job.logs()
    [warning] = [event["message"] for event in events(job, "warning")]
    assert "cannot be written, and a part of it is lost: No space left on device (algo-1)" in warning
    assert warning in job.describe().warnings


def test_no_job_starts_on_a_full_disk(small_disk: None, run: Run) -> None:
    home = Path(os.environ["CLOUDTRAIN_HOME"], "jobs")
    (home / "fill").write_bytes(bytes((4 << 20) - (100 << 10)))
    with pytest.raises(Exception, match=r"the disk of .* is full") as raised:
        run("print('on')", job_name="late")
    assert "Free space on it" in getattr(raised.value, "hint", "")
    assert [path.name for path in (home / "local").iterdir()] == []
    (home / "fill").unlink()
    assert run("print('on')", job_name="late").status == JobStatus.COMPLETED


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.1, 0.15, 0.2, 0.3])
def test_a_disk_that_is_full_for_a_moment_at_launch_ends_no_job(
    delay: float, small_disk: None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(os.environ["CLOUDTRAIN_HOME"], "jobs")
    was_full = threading.Event()

    def fill() -> None:
        wait_until(lambda: (home / "local/moment").exists(), "the folder of the job")
        time.sleep(delay)
        with open(home / "fill", "wb", buffering=0) as file, contextlib.suppress(OSError):
            for size in (65536, 4096, 512, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))
        was_full.set()
        time.sleep(0.5)
        (home / "fill").unlink()

    filling = threading.Thread(target=fill)
    filling.start()
    try:
        job = run("print('on')", job_name="moment")
    finally:
        filling.join()
    assert was_full.is_set()
    assert job.status == JobStatus.COMPLETED, job.failure
