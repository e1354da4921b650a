"""The batch step of a job on Slurm, on its first node.

Usage: ``python cloudtrain.pyz cloudtrain.platforms.slurm.step FOLDER``, with the folder of the job; for an element of
an array ``FOLDER --element``, without the number at the end of its name.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cloudtrain.platforms.batch.step import job_number, run_step
from cloudtrain.platforms.batch.submissions import SUBMISSIONS, parse_submissions
from cloudtrain.platforms.batch.variables import without_outer_allocation
from cloudtrain.platforms.slurm.continuation import SlurmContinuation
from cloudtrain.platforms.slurm.hosts import SlurmHosts
from cloudtrain.platforms.supervised.folder import JobFolder

SQUEUE_SECONDS = 60.0


def make_continuation(folder: JobFolder) -> SlurmContinuation:
    requeue = folder.read_request().get("requeue", "never")
    return SlurmContinuation(folder, job_number(), requeue=requeue)


def job_folder(arguments: Sequence[str]) -> Path:
    """The folder of the job, or of this element of an array."""
    element = f"-{os.environ['SLURM_ARRAY_TASK_ID']}" if "--element" in arguments else ""
    return Path(arguments[0] + element)


def running_submission(folder: Path, own: str, environ: Mapping[str, str]) -> str:
    """The number of another submission of this job that runs now; empty if there is none, or Slurm does not answer.

    Someone may submit the script by hand while the job runs. Two runs would write the same files.
    """
    try:
        known = parse_submissions((folder / SUBMISSIONS).read_bytes())
    except OSError:
        return ""
    here = ("", environ.get("SLURM_CLUSTER_NAME", ""))
    others = [one.number for one in known if one.number != own and one.cluster in here]
    if not others:
        return ""
    command = ["squeue", "--noheader", "--states=RUNNING,SUSPENDED", "--format=%i"]
    try:
        asked = subprocess.run(
            [*command, f"--jobs={','.join(others)}"],
            env=without_outer_allocation(environ)[0],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=SQUEUE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):  # a node may have no squeue
        return ""
    return next((number for number in asked.stdout.split() if number in others), "")


def main(arguments: Sequence[str]) -> int:
    folder, number = job_folder(arguments), job_number()
    other = running_submission(folder, number, os.environ)
    if other:
        sys.stderr.write(f"the job runs already, as Slurm job {other}: stop it before you submit it again\n")
        return 1
    return run_step(folder, number, SlurmHosts, make_continuation)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
