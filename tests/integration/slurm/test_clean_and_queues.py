"""``cloudtrain clean`` asks the queue before it removes a job: one that waits has no process and no lock."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from slurm_cluster import SlurmCluster
from slurm_jobs import POLL, queue_is_empty, wait_for_end, wait_for_line, wait_until

from cloudtrain import Estimator, Job
from cloudtrain.cli.clean import command
from cloudtrain.contract import JobStatus
from cloudtrain.index import find_job
from cloudtrain.storage import state_home

SCRIPT = """
import os, time
print("begins", flush=True)
while not os.path.exists("GO"):
    time.sleep(0.05)
"""
DAYS_AGO = time.time() - 5 * 86400


def submit(folder: Path, platform: str, name: str, **options: Any) -> Job:
    script = folder / "train.py"
    script.write_text(SCRIPT.replace("GO", f"{folder}/go"))
    return Estimator(str(script), platform=platform, max_run=1200, platform_options=options).fit(
        job_name=name, wait=False
    )


def age(job: Job) -> None:
    """Let all files of the job be old, as those of a job that has been in the queue for days."""
    for parent, _, names in os.walk(state_home() / "jobs" / job.platform.name / job.name):
        for name in names:
            os.utime(os.path.join(parent, name), (DAYS_AGO, DAYS_AGO))


def clean(*options: str) -> Result:
    return CliRunner().invoke(command, ["--jobs-older-than", "1d", "--caches", *options])


def silent(folder: Path) -> Path:
    """A folder of commands for a scheduler that does not answer."""
    (folder / "silent").mkdir()
    for name in ("squeue", "sacct", "scontrol", "qstat"):
        (folder / "silent" / name).write_text("#!/bin/sh\necho 'Connection refused' >&2; exit 1\n")
        (folder / "silent" / name).chmod(0o755)
    return folder / "silent"


@pytest.mark.parametrize("platform", ["slurm", "torque"])
def test_jobs_that_wait_or_run_keep_their_folders_and_the_runtime(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    if platform == "slurm":
        running = submit(tmp_path, platform, "running", **POLL)
        waiting = submit(tmp_path, platform, "waiting", begin="now+1hour", **POLL)
    else:
        running = submit(tmp_path, platform, "running", cpus=8)
        wait_for_line(running, "begins")
        waiting = submit(tmp_path, platform, "waiting", nodes="3:ppn=8")
    wait_for_line(running, "begins")
    jobs, runtime = state_home() / "jobs" / platform, [*(state_home() / "runtime").rglob("*.pyz")]
    (state_home() / "jobs" / platform / "running" / "lock").unlink(
        missing_ok=True
    )  # it is on another machine
    assert runtime
    for job in (running, waiting):
        age(job)
    assert clean().exit_code == 0
    assert sorted(path.name for path in jobs.iterdir()) == ["running", "waiting"]
    assert all(path.exists() for path in runtime)

    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{silent(tmp_path)}:{os.environ['PATH']}")
        shutil.rmtree(state_home() / "queues", ignore_errors=True)
        clean()
    assert sorted(path.name for path in jobs.iterdir()) == ["running", "waiting"]

    waiting.stop()
    (tmp_path / "go").touch()
    assert wait_for_end(running).status == JobStatus.COMPLETED
    wait_until(lambda: waiting.status == JobStatus.STOPPED, "the stop")
    wait_until(lambda: queue_is_empty(slurm), "the end of the batch step")
    for job in (running, waiting):
        record = jobs / job.name / "state.json"
        document = json.loads(record.read_text())
        record.write_text(json.dumps({**document, "ended_at": DAYS_AGO}))
        age(job)
    assert clean().exit_code == 0
    assert not [*jobs.iterdir()]
    assert find_job("running") is None
    assert not any(path.exists() for path in runtime)
