"""The batch step of a job on Slurm, on its first node.

Usage: ``python cloudtrain.pyz cloudtrain.platforms.slurm.step FOLDER``, with the folder of the job.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cloudtrain.platforms.batch.step import job_number, run_step
from cloudtrain.platforms.slurm.continuation import SlurmContinuation
from cloudtrain.platforms.slurm.hosts import SlurmHosts
from cloudtrain.platforms.supervised.folder import JobFolder


def make_continuation(folder: JobFolder) -> SlurmContinuation | None:
    requeue = folder.read_request().get("requeue", "never")
    if requeue == "never":
        return None
    return SlurmContinuation(folder, job_number(), chained=requeue == "chain")


if __name__ == "__main__":
    sys.exit(run_step(Path(sys.argv[1]), job_number(), SlurmHosts, make_continuation))
