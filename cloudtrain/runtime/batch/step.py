"""The batch step of a job on any scheduler except Slurm.

Usage: ``python cloudtrain.pyz cloudtrain.runtime.batch.step FOLDER``. FOLDER is the job folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cloudtrain.runtime.batch.start import choose, command, node_names
from cloudtrain.runtime.supervisor.batch_step import run_step
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.node_hosts import NodeHosts


class BatchHosts(NodeHosts):
    """The nodes, in the scheduler's order."""

    def __init__(self, folder: JobFolder, secrets: Mapping[str, str]) -> None:
        super().__init__(folder, node_names(os.environ), secrets)

    def command(self) -> list[str]:
        program = choose(self._request.get("start", "auto"), self.names, os.environ)
        return command(program, self.names, self._request["bundled_runtime"], str(self._folder.path))


NUMBERS = ("PBS_JOBID", "COBALT_JOBID", "LSB_JOBID", "SLURM_JOB_ID")
"""The variables with the scheduler's number of this job. The last one is for Torque's commands on top of Slurm."""

if __name__ == "__main__":
    number = next((os.environ[name] for name in NUMBERS if os.environ.get(name)), "")
    sys.exit(run_step(Path(sys.argv[1]), number, BatchHosts))
