"""Runs as a rank that ``srun --mpi=...`` started: finds its host's runtime, and becomes `cloudtrain.runtime.rank`.

srun runs on the leader, as another step of the job, instead of ``mpirun``. Ranks find the runtime of their host by the
job's folder, and get their environment from it.

Usage: ``python cloudtrain.pyz cloudtrain.runtime.launchers.srun_rank HOSTS``. HOSTS is the folder of the job's hosts.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from cloudtrain._system.signals import unblock
from cloudtrain.runtime.parent_death import RUNTIME_PID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SIZE = "CLOUDTRAIN_MPI_SIZE"
LOCAL_RANK = "CLOUDTRAIN_MPI_LOCAL_RANK"
RUNTIME = "CLOUDTRAIN_MPI_RUNTIME"
"""Variables of a rank: the size of srun's world, its place on the host, and the process id of the runtime."""
_FILE = "srun-launch"

WAIT_SECONDS = 60.0
"""The time that the runtime of a host other than the leader may take to prepare its ranks."""

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


def write_launch(run: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Store the command and environment of this host's ranks. Only their user can read it: it may contain secrets."""
    variables = [f"{name}={value}" for name, value in environment.items()]
    descriptor = os.open(f"{run}/{_FILE}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(os.fsencode("\0".join([str(len(command)), *command, *variables])))


def read_launch(run: str) -> tuple[list[str], dict[str, str]]:
    """The inverse of `write_launch`. Raises FileNotFoundError if the runtime has not written it yet."""
    with open(f"{run}/{_FILE}", "rb") as file:
        count, *rest = os.fsdecode(file.read()).split("\0")
    return rest[: int(count)], dict(entry.split("=", 1) for entry in rest[int(count) :])


def rank_environment(of_step: Mapping[str, str], of_host: Mapping[str, str]) -> dict[str, str]:
    """The environment of the host's ranks, with the step's variables by which MPI finds the other ranks."""
    environ = {name: value for name, value in of_step.items() if name.startswith(OF_MPI)}
    environ.update((name, value) for name, value in of_host.items() if name != RUNTIME_PID)
    environ[SIZE] = of_step["SLURM_NTASKS"]
    environ[LOCAL_RANK] = of_step["SLURM_LOCALID"]
    environ[RUNTIME] = of_host[RUNTIME_PID]
    return environ


def _wait_for_launch(hosts: str, name: str) -> tuple[list[str], dict[str, str]]:
    """Wait for the launch of this host. The folder of its runtime is the only one in the host's run folder."""
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
