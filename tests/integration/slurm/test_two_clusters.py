"""Two clusters with one home folder: a client on the second one reads the folders of jobs on the first one."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_cluster import Configuration, SlurmCluster
from slurm_fixtures import SlurmOf
from slurm_jobs import number_of, submit, wait_for_end, wait_for_line

from cloudtrain import JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.registry import get_platform

SCRIPT = """
import time
print("started", flush=True)
time.sleep(SECONDS)
"""
FAST = {"poll_seconds": 1}


@pytest.fixture
def first(slurm_of: SlurmOf) -> SlurmCluster:
    return slurm_of(Configuration())


def test_a_job_of_the_other_cluster_is_neither_ended_nor_taken_for_another(
    first: SlurmCluster, slurm_of: SlurmOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = {**FAST, "sbatch": {"begin": "now+1hour"}}
    waits = submit(tmp_path, SCRIPT.replace("SECONDS", "0"), "waits", nodes=1, platform_options=later)
    runs = submit(tmp_path, SCRIPT.replace("SECONDS", "600"), "runs", nodes=1, platform_options=FAST)
    wait_for_line(runs, "started")
    same_numbers = f"FirstJobId={number_of(waits)}"
    other = slurm_of(Configuration(name="other", lines=(same_numbers,)))
    for job in (waits, runs):
        assert other.submit("exit 0") == number_of(job)
        other.wait(number_of(job))
    listed = {job.name: job.status for job in get_platform("slurm").list()}
    assert listed == {"waits": JobStatus.PENDING, "runs": JobStatus.RUNNING}
    for job in (waits, runs):
        [warning] = get_platform("slurm").describe(job.name).warnings
        assert "on the cluster test, and this machine belongs to other" in warning
    with pytest.raises(PlatformError, match="on the cluster test"):
        get_platform("slurm").stop("runs")
    monkeypatch.setenv("SLURM_CONF", str(first.conf))
    assert wait_for_end(runs).describe().reason == "stopped by the user"
    first("scontrol", "update", f"jobid={number_of(waits)}", "StartTime=now")
    assert wait_for_end(waits).status == JobStatus.COMPLETED


def test_a_batch_step_that_lives_is_evidence_enough(
    slurm: SlurmCluster, slurm_of: SlurmOf, tmp_path: Path
) -> None:
    """The clusters have the same name, or none."""
    runs = submit(tmp_path, SCRIPT.replace("SECONDS", "600"), "runs", nodes=1, platform_options=FAST)
    wait_for_line(runs, "started")
    slurm_of(Configuration(nodes=1))
    assert [job.status for job in get_platform("slurm").list()] == [JobStatus.RUNNING]
