"""The batch step of a job: the supervisor, which the scheduler starts on the first node."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cloudtrain.errors import CloudtrainError
from cloudtrain.runtime.supervisor.claim import Claim
from cloudtrain.runtime.supervisor.continuation import Continuation
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.hosts import Hosts
from cloudtrain.runtime.supervisor.sending import notifications_sent
from cloudtrain.runtime.supervisor.submissions import (
    Submission,
    note_submission,
    read_secrets,
    remove_secrets,
)
from cloudtrain.runtime.supervisor.supervise import supervise

MakeHosts = Callable[[JobFolder, Mapping[str, str]], Hosts]

CONTINUED = 75
"""EX_TEMPFAIL of sysexits.h: the exit code of a submission after which the job continues in another one."""


def run_step(
    folder: Path,
    number: str,
    make_hosts: MakeHosts,
    make_continuation: Callable[[JobFolder], Continuation | None] = lambda folder: None,
) -> int:
    """Run the job in ``folder`` to its end. Returns the exit code for the scheduler, which is the job's own.

    Does nothing if the job has ended in an earlier submission, or if another submission is running it.

    Args:
        number: the scheduler's number of the job.
        make_hosts: creates the hosts of the job, from its folder and its secrets.
        make_continuation: creates the object that starts the next attempt after a preemption, if there is one. In that
            case, the exit code is `CONTINUED`.
    """
    try:
        with Claim(folder, number) as claim:
            if not claim.other:
                return _run(folder, number, make_hosts, make_continuation)
        sys.stderr.write(f"the job runs already, as {claim.other}: stop it before you submit it again\n")
    except CloudtrainError as error:  # the client shows the last line of this output
        sys.stderr.write(f"{error.message}\n")
    return 1


def _run(
    folder: Path,
    number: str,
    make_hosts: MakeHosts,
    make_continuation: Callable[[JobFolder], Continuation | None],
) -> int:
    job = JobFolder(folder)
    record = job.read_record()
    if record.status.is_final and not record.is_damaged:
        sys.stderr.write(f"the job has ended in an earlier submission: {record.status}\n")
        return 0
    try:
        # also for a job that a user has resubmitted by hand
        note_submission(
            folder, Submission(number, time=time.time(), site=os.environ.get("SLURM_CLUSTER_NAME", ""))
        )
        continuation = make_continuation(job)
        secrets = read_secrets(folder)
        with notifications_sent(job, {**os.environ, **secrets}, in_allocation=True) as (own, keep):
            hosts = make_hosts(job, {name: secrets[name] for name in secrets.keys() - own})
            supervise(job, hosts, continuation, keep_courier=keep)
        record = job.read_record()
    except CloudtrainError:
        remove_secrets(folder)
        raise
    if not record.status.is_final:
        return CONTINUED
    remove_secrets(folder)
    if continuation:
        continuation.end()
    return record.exit_code or 0


def job_number(environ: Mapping[str, str] = os.environ) -> str:
    """The number of this job, in the notation of ``squeue``: an array element of Slurm has two numbers."""
    array = environ.get("SLURM_ARRAY_JOB_ID")
    if array:
        return f"{array}_{environ.get('SLURM_ARRAY_TASK_ID', '0')}"
    return environ.get("SLURM_JOB_ID", "")
