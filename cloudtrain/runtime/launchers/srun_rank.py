"""A rank that ``srun --mpi=...`` started: finds the runtime of its host, and becomes `cloudtrain.runtime.rank`.

Usage: ``python cloudtrain.pyz cloudtrain.runtime.launchers.srun_rank HOSTS``, with the folder of the job's hosts.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from cloudtrain._system.signals import unblock
from cloudtrain.runtime.launchers.srun import LOCAL_RANK, RUNTIME, SIZE, read_launch
from cloudtrain.runtime.parent_death import RUNTIME_PID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

WAIT_SECONDS = 60.0
"""How long the runtime of another host than the leader may take to prepare its ranks."""

OF_MPI = ("PMI_", "PMI2_", "PMIX_", "SLURM_PMI", "SLURM_PMIX", "SLURM_MPI")
"""Prefixes of the variables by which MPI finds its world."""


assert sys.platform != "win32", "jobs run on Linux and macOS"


def main() -> None:
    unblock((signal.SIGTERM,))  # see zipapp_main
    command, environment = _wait_for_launch(sys.argv[1], os.environ["SLURMD_NODENAME"])
    environ = rank_environment(os.environ, environment)
    if not any(name in environ for name in ("PMIX_RANK", "PMI_RANK")):
        sys.exit(
            "cloudtrain: srun gave this rank no place in a world of MPI: srun --mpi=list shows the values of "
            "platform_options.launcher_srun that this cluster knows"
        )
    os.execve(command[0], command, environ)


def rank_environment(of_step: Mapping[str, str], of_host: Mapping[str, str]) -> dict[str, str]:
    """The environment of the host's ranks, with the variables of the step by which MPI finds the others."""
    environ = {name: value for name, value in of_step.items() if name.startswith(OF_MPI)}
    environ.update((name, value) for name, value in of_host.items() if name != RUNTIME_PID)
    environ[SIZE] = of_step["SLURM_NTASKS"]
    environ[LOCAL_RANK] = of_step["SLURM_LOCALID"]
    environ[RUNTIME] = of_host[RUNTIME_PID]
    return environ


def _wait_for_launch(hosts: str, name: str) -> tuple[list[str], dict[str, str]]:
    """The launch of this host. Its runtime has the only folder in its run folder."""
    run = f"{hosts}/{name}/run"
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            for folder in os.listdir(run):
                return read_launch(f"{run}/{folder}")
        except FileNotFoundError:
            pass
        if time.monotonic() > deadline:
            sys.exit(f"cloudtrain: the runtime of {name} does not prepare its ranks")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
