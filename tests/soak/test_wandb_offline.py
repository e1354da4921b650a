"""The real wandb without a network: `wandb sync` finds the files of all attempts, as one run."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from local_jobs import events, folder, wait_for_end, wait_until, write
from tracker_programs import programs_of

from cloudtrain import Estimator, JobStatus

SCRIPT = """
    import os, time

    import wandb

    attempt = int(os.environ["CLOUDTRAIN_ATTEMPT"])
    run = wandb.init(project="digits")
    for step in range(6000 if attempt == 0 else 10):
        run.log({"loss": 1 / (step + 1)})
        time.sleep(0.1)
    run.finish()
"""


@pytest.mark.timeout(900)
def test_the_files_of_all_attempts_are_one_run(tmp_path: Path) -> None:
    programs = programs_of("wandb>=0.31,<1")
    write(tmp_path, "train.py", SCRIPT)
    script = write(tmp_path, "run.sh", f'#!/bin/sh\nexec {programs}/python train.py "$@"\n') / "run.sh"
    script.chmod(0o755)
    job = Estimator(
        "run.sh", source_dir=str(tmp_path), max_retry_attempts=1, environment={"WANDB_MODE": "offline"}
    ).fit(wait=False)
    kept = folder(job).path / "output" / "wandb"
    try:
        wait_until(lambda: any(path.stat().st_size for path in _files(kept)), "the first upload", 300)
        os.kill(events(job, "host")[-1]["pid"], signal.SIGKILL)  # a lost node
        wait_for_end(job, 300)
    finally:
        job.stop()
    assert job.status == JobStatus.COMPLETED, job.logs()
    files = _files(kept)
    assert len(files) == 2
    assert len({path.name for path in files}) == 1  # run-ID.wandb
    done = subprocess.run(
        [f"{programs}/wandb", "sync", "--dry-run", *(str(path.parent) for path in files)],
        capture_output=True, text=True, check=True, cwd=tmp_path, timeout=120,
    )  # fmt: skip
    assert "Would sync 2 run(s)" in done.stdout + done.stderr


def _files(kept: Path) -> list[Path]:
    return sorted(kept.glob("offline-run-*/run-*.wandb"))
