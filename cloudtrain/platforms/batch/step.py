"""The batch step of a job: the supervisor, which the scheduler starts on the first node."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cloudtrain.errors import CloudtrainError
from cloudtrain.platforms.batch.secrets_file import take_secrets
from cloudtrain.platforms.batch.submissions import SUBMISSIONS, Submission, with_submission
from cloudtrain.platforms.supervised.folder import JobFolder
from cloudtrain.platforms.supervised.hosts import Hosts
from cloudtrain.platforms.supervised.supervisor import supervise
from cloudtrain.storage.atomic import replace_file

MakeHosts = Callable[[JobFolder, Mapping[str, str]], Hosts]


def run_step(folder: Path, number: str, make_hosts: MakeHosts) -> int:
    """Run the job in ``folder`` to its end. Returns the exit code for the scheduler, which is the job's own.

    Args:
        number: the scheduler's number of the job.
        make_hosts: creates the hosts of the job, from its folder and its secrets.
    """
    job = JobFolder(folder)
    try:
        _note(folder, number)
        supervise(job, make_hosts(job, take_secrets(folder)))
    except CloudtrainError as error:  # the client shows the last line of this output
        sys.stderr.write(f"{error.message}\n")
        return 1
    return job.read_record().exit_code or 0


def _note(folder: Path, number: str) -> None:
    """Write down the scheduler's number, also of a job that was submitted again by hand."""
    path = folder / SUBMISSIONS
    known = path.read_bytes() if path.exists() else b""
    new = with_submission(known, Submission(number, time=time.time()))
    if new != known:
        replace_file(path, new, mode=0o600)


def job_number(environ: Mapping[str, str] = os.environ) -> str:
    """The number of this job, in the notation of ``squeue``: Slurm's elements of an array have two."""
    array = environ.get("SLURM_ARRAY_JOB_ID")
    if array:
        return f"{array}_{environ.get('SLURM_ARRAY_TASK_ID', '0')}"
    return environ.get("SLURM_JOB_ID", "")
