"""A job whose script is submitted by hand while it runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster
from slurm_jobs import job_folder, submit, wait_for_end, wait_for_line

from cloudtrain.contract import JobStatus

WAITS = """
import os, time
print("begins", flush=True)
while not os.path.exists("GO"):
    time.sleep(0.05)
"""


def test_a_job_that_runs_is_not_started_again(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    job = submit(tmp_path, WAITS.replace("GO", f"{tmp_path}/go"), "alone", nodes=1)
    wait_for_line(job, "begins")
    done = subprocess.run(
        ["sbatch", "--parsable", "job.sh"],
        cwd=job_folder(job),
        capture_output=True,
        text=True,
        env={**os.environ, **slurm.env},
    )
    assert slurm.wait(int(done.stdout)) == "FAILED"
    log = (job_folder(job) / "supervisor.log").read_text()
    assert "the job runs already, as Slurm job" in log
    (tmp_path / "go").touch()
    assert wait_for_end(job).status == JobStatus.COMPLETED
    assert job.logs().splitlines() == ["[rank 0] begins"]
