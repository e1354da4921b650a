"""Faults of a cluster: every job ends with the right status and report, and nothing is left of a refused one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster
from slurm_jobs import number_of, queue_is_empty, submit, wait_for_end, wait_until

from cloudtrain import FailureClass, Job, JobStatus
from cloudtrain.errors import JobNotFound, PlatformError

SLEEPS = """
import time
print("sleeping", flush=True)
time.sleep(600)
"""

FAILS_ON_THE_SECOND_NODE = """
import os, signal, time
print("started", flush=True)
if os.environ["RANK"] == "1":
    {ending}
time.sleep(600)
"""


def nothing_is_left(name: str) -> bool:
    folder = Path(os.environ["CLOUDTRAIN_HOME"], "jobs", "slurm")
    with pytest.raises(JobNotFound):
        Job.attach(name, platform="slurm")
    return not folder.exists() or not any(folder.iterdir())


def test_what_slurm_refuses_leaves_nothing(slurm: SlurmCluster, tmp_path: Path) -> None:
    refused = {
        "wrong-partition": ({"partition": "nosuch"}, r"invalid partition specified: nosuch"),
        "too-many-gpus": ({"gpus": 9}, r"Requested node configuration is not available"),
        "wrong-flag": ({"sbatch": {"no-such-flag": "x"}}, r"unrecognized option '--no-such-flag=x'"),
    }
    for name, (options, words) in refused.items():
        with pytest.raises(PlatformError, match=words):
            submit(tmp_path, SLEEPS, name, platform_options=options)
        assert nothing_is_left(name)
    assert queue_is_empty(slurm)


def test_sbatch_is_missing(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PlatformError, match="there is no sbatch on this machine") as caught:
        submit(tmp_path, SLEEPS, "nowhere")
    assert "login" in (caught.value.hint or "")
    assert nothing_is_left("nowhere")


def test_the_controller_is_down_at_submission(slurm: SlurmCluster, tmp_path: Path) -> None:
    slurm.stop_controller()
    with pytest.raises(PlatformError, match="Unable to contact slurm controller") as caught:
        submit(tmp_path, SLEEPS, "too-early")
    assert "again" in (caught.value.hint or "")
    assert nothing_is_left("too-early")


def test_a_rank_fails_on_the_second_node(slurm: SlurmCluster, tmp_path: Path) -> None:
    raises = submit(
        tmp_path, FAILS_ON_THE_SECOND_NODE.format(ending="raise ValueError('bad sample')"), "raises"
    )
    killed = submit(
        tmp_path, FAILS_ON_THE_SECOND_NODE.format(ending="os.kill(os.getpid(), signal.SIGKILL)"), "killed"
    )
    report = wait_for_end(raises).failure
    assert report
    assert (report.failure_class, report.rank, report.host) == (FailureClass.USER_ERROR, 1, "127.0.0.3")
    assert (report.exception_type, report.message) == ("ValueError", "bad sample")
    assert (
        'raise ValueError("bad sample")' in report.traceback
        or "raise ValueError('bad sample')" in report.traceback
    )
    report = wait_for_end(killed).failure
    assert report
    assert (report.failure_class, report.rank, report.host) == (FailureClass.KILLED, 1, "127.0.0.3")
    assert (report.signal, report.exit_code) == (9, 137)
    assert killed.status == JobStatus.FAILED
    wait_until(lambda: queue_is_empty(slurm), "the end of both jobs in Slurm")
    assert slurm.state(number_of(raises)) == "FAILED"


@pytest.fixture
def small_folder(slurm: SlurmCluster) -> Path:
    """A file system of 8 MB."""
    try:
        return slurm.small_disk(8)
    except PermissionError:
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", "a small file system cannot be mounted here"
        pytest.skip("mounting a file system needs root")


def test_the_shared_folder_is_full(slurm: SlurmCluster, small_folder: Path, tmp_path: Path) -> None:
    fills = """
    import os
    with open(os.environ["SM_MODEL_DIR"] + "/weights", "wb") as file:
        while True:
            file.write(bytes(65536))
    """
    options = {"folder": str(small_folder)}
    job = submit(tmp_path, fills, "fills", nodes=1, platform_options=options)
    described = wait_for_end(job).describe()
    assert described.failure
    assert described.failure.failure_class == FailureClass.DISK_FULL
    assert described.failure.host == "127.0.0.2"
    assert any("less than 1 MB left" in warning for warning in described.warnings)
    fill(small_folder / "fill")
    place = f"{small_folder}/jobs/slurm/late"
    with pytest.raises(PlatformError, match=f"{place}: No space left on device") as caught:
        submit(tmp_path, SLEEPS, "late", nodes=1, platform_options=options)
    assert "another disk" in (caught.value.hint or "")
    assert sorted(path.name for path in (small_folder / "jobs" / "slurm").iterdir()) == ["fills"]
    wait_until(lambda: queue_is_empty(slurm), "the end of the step")


def fill(path: Path) -> None:
    """Leave no free byte."""
    with path.open("wb", buffering=0) as file:
        for size in (65536, 4096, 512, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
