"""Has Slurm's ``srun`` start the ranks of a job with the distribution ``mpi``, in place of ``mpirun``.

srun runs on the leader, as another step of the job, and starts `srun_rank` for every rank. Ranks
find the runtime of their host through the job's folder, and have its environment: see `write_launch`.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping, Sequence

from cloudtrain.contract import RankSlot
from cloudtrain.errors import PlatformError

RANK = "cloudtrain.runtime.launchers.srun_rank"
SIZE = "CLOUDTRAIN_MPI_SIZE"
LOCAL_RANK = "CLOUDTRAIN_MPI_LOCAL_RANK"
RUNTIME = "CLOUDTRAIN_MPI_RUNTIME"
"""Variables of a rank: the size of srun's world, its place on the host, and the process id of the runtime."""
_FILE = "srun-launch"


def srun_command(
    options: Mapping[str, str], slot: RankSlot, environ: Mapping[str, str], python: str
) -> tuple[str, ...]:
    """The command line of srun.

    Args:
        options: `Settings.srun`: ``mpi``, ``hosts`` and ``runtime``.
        slot: any slot of this host.
        python: the interpreter of the runtime.

    Raises PlatformError if there is no srun.
    """
    srun = shutil.which("srun", path=environ.get("PATH"))
    if srun is None:
        raise PlatformError(
            f"there is no srun on {socket.gethostname()}", hint="Leave platform_options.launcher_srun out."
        )
    return (
        *(srun, f"--jobid={environ.get('CLOUDTRAIN_SLURM_JOB_ID', '')}", f"--mpi={options['mpi']}"),
        *("--overlap", "--overcommit", f"--nodes={slot.host_count}", f"--ntasks={slot.world_size}"),
        *(f"--ntasks-per-node={slot.local_size}", "--distribution=block", "--cpu-bind=none", "--export=ALL"),
        *("--kill-on-bad-exit=0", "--wait=0", "--input=none"),
        *(python, options["runtime"], RANK, options["hosts"]),
    )


def write_launch(run: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Store the command of this host's ranks and their environment, for their user only: it may hold secrets."""
    variables = [f"{name}={value}" for name, value in environment.items()]
    descriptor = os.open(f"{run}/{_FILE}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(os.fsencode("\0".join([str(len(command)), *command, *variables])))


def read_launch(run: str) -> tuple[list[str], dict[str, str]]:
    """The inverse of `write_launch`. Raises FileNotFoundError if the runtime has not written it yet."""
    with open(f"{run}/{_FILE}", "rb") as file:
        count, *rest = os.fsdecode(file.read()).split("\0")
    return rest[: int(count)], dict(entry.split("=", 1) for entry in rest[int(count) :])
