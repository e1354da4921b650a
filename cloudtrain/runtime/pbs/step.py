"""The batch step of a job on PBS Professional, Torque or Cobalt.

Usage: ``python cloudtrain.pyz cloudtrain.runtime.pbs.step FOLDER``, with the folder of the job.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cloudtrain.runtime.pbs.hosts import PbsHosts
from cloudtrain.runtime.supervisor.batch_step import run_step

NUMBERS = ("PBS_JOBID", "COBALT_JOBID", "SLURM_JOB_ID")
"""The variables with the scheduler's number of this job; the last one behind the commands of Torque on Slurm."""

if __name__ == "__main__":
    number = next((os.environ[name] for name in NUMBERS if os.environ.get(name)), "")
    sys.exit(run_step(Path(sys.argv[1]), number, PbsHosts))
