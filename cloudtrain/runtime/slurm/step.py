"""The batch step of a job on Slurm, on its first node.

Usage: ``python cloudtrain.pyz cloudtrain.runtime.slurm.step FOLDER``, with the folder of the job; for an element of
an array ``FOLDER --element``, without the number at the end of its name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from cloudtrain.runtime.slurm.continuation import SlurmContinuation
from cloudtrain.runtime.slurm.hosts import SlurmHosts
from cloudtrain.runtime.supervisor.batch_step import job_number, run_step
from cloudtrain.runtime.supervisor.folder import JobFolder


def make_continuation(folder: JobFolder) -> SlurmContinuation:
    requeue = folder.read_request().get("requeue", "never")
    return SlurmContinuation(folder, job_number(), requeue=requeue)


def job_folder(arguments: Sequence[str]) -> Path:
    """The folder of the job, or of this element of an array."""
    element = f"-{os.environ['SLURM_ARRAY_TASK_ID']}" if "--element" in arguments else ""
    return Path(arguments[0] + element)


def main(arguments: Sequence[str]) -> int:
    folder = job_folder(arguments)

    @cache
    def continuation() -> SlurmContinuation:
        return make_continuation(JobFolder(folder))

    def make_hosts(job: JobFolder, secrets: Mapping[str, str]) -> SlurmHosts:
        return SlurmHosts(job, secrets, continuation().longest_grace())

    return run_step(folder, job_number(), make_hosts, lambda _: continuation())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
