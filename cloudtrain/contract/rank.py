"""One rank's position in the world, and the variables in which each launcher passes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple

from cloudtrain._dataclass import dataclass
from cloudtrain.contract.slurm_step import SlurmTask


@dataclass(frozen=True)
class LauncherEnv:
    """Names of the six variables that one launcher sets; empty where it sets none."""

    rank: str
    size: str
    local_rank: str
    local_size: str
    cross_rank: str
    cross_size: str

    @classmethod
    def detect(cls, environ: Mapping[str, str]) -> LauncherEnv:
        """The launcher that set a rank or a size in ``environ``; `TORCHRUN` if none did.

        `TORCHRUN` takes precedence: cloudtrain sets its variables in every rank, whichever launcher starts the rank.
        `CLOUDTRAIN` is last: a script without a launcher may start ranks itself, which inherit its variables.
        """
        for names in (TORCHRUN, OPEN_MPI, MPICH, HOROVODRUN, CLOUDTRAIN):
            if names.rank in environ or names.size in environ:
                return names
        return TORCHRUN


TORCHRUN = LauncherEnv(
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"
)
"""Also set by cloudtrain itself."""

OPEN_MPI = LauncherEnv(
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "OMPI_COMM_WORLD_CROSS_RANK",
    "OMPI_COMM_WORLD_CROSS_SIZE",
)

MPICH = LauncherEnv("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "", "")
"""Also set by Intel MPI."""

HOROVODRUN = LauncherEnv(
    "HOROVOD_RANK",
    "HOROVOD_SIZE",
    "HOROVOD_LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE",
    "HOROVOD_CROSS_RANK",
    "HOROVOD_CROSS_SIZE",
)

CLOUDTRAIN = LauncherEnv(
    "CLOUDTRAIN_RANK",
    "CLOUDTRAIN_WORLD_SIZE",
    "CLOUDTRAIN_LOCAL_RANK",
    "CLOUDTRAIN_LOCAL_WORLD_SIZE",
    "CLOUDTRAIN_HOST_RANK",
    "CLOUDTRAIN_HOST_COUNT",
)
"""Set in a job without a launcher. Other libraries ignore them, and see an ordinary process."""


def with_rank(environ: Mapping[str, str]) -> Mapping[str, str]:
    """``environ``, with the variables of `TORCHRUN` for ranks whose launcher does not set one variable for each.

    These are the tasks of a Slurm step (see `cloudtrain.contract.slurm_step`), and the ranks that PyTorch Lightning
    starts itself.
    """
    if TORCHRUN.rank in environ:
        return environ
    derived = _of_lightning(environ) or _of_slurm(environ)
    return {**dict(zip(astuple(TORCHRUN), map(str, derived))), **environ} if derived else environ


def started_by_srun(environ: Mapping[str, str]) -> bool:
    """Whether this process is a rank because it is a task of a Slurm step, and no other launcher started it."""
    return TORCHRUN.rank not in environ and bool(_of_slurm(environ))


def _of_lightning(environ: Mapping[str, str]) -> tuple[int, ...]:
    """The values from ``WORLD_SIZE``, ``LOCAL_RANK`` and ``NODE_RANK``, the only variables that Lightning sets.

    The number of hosts is that of the job, or else the smallest possible one.
    """
    try:
        size, local_rank, host = (int(environ[name]) for name in ("WORLD_SIZE", "LOCAL_RANK", "NODE_RANK"))
        host_count = max(int(environ.get("SM_HOST_COUNT", 1)) if host else 1, host + 1)
    except (KeyError, ValueError):
        return ()
    local_size = size // host_count
    return (host * local_size + local_rank, size, local_rank, local_size, host, host_count)


def _of_slurm(environ: Mapping[str, str]) -> tuple[int, ...]:
    """The values of a task of a Slurm step, unless the task is an MPI launcher and this process is one of its ranks."""
    if any(name in environ for name in (OPEN_MPI.rank, MPICH.local_rank, HOROVODRUN.rank)):
        return ()
    task = SlurmTask.from_environ(environ)
    if task is None:
        return ()
    return (task.rank, task.size, task.local_rank, task.local_size, task.host_rank, task.host_count)


@dataclass(frozen=True)
class RankSlot:
    """Rank ``rank`` of ``world_size``, the ``local_rank``-th of ``local_size`` on host ``host_rank``."""

    rank: int
    local_rank: int
    world_size: int
    local_size: int
    host_rank: int
    host_count: int

    @classmethod
    def on_host(cls, host_rank: int, host_count: int, local_size: int) -> list[RankSlot]:
        """The slots of one host; every host has ``local_size`` of them."""
        first = host_rank * local_size
        return [
            cls(first + local, local, host_count * local_size, local_size, host_rank, host_count)
            for local in range(local_size)
        ]

    def variables(self, names: LauncherEnv) -> dict[str, str]:
        """This slot in the variables of one launcher."""
        values = (
            *(self.rank, self.world_size, self.local_rank, self.local_size),
            *(self.host_rank, self.host_count),
        )
        return dict(zip(astuple(names), map(str, values)))

    def environment(self, master_addr: str, master_port: int) -> dict[str, str]:
        """The variables that ``torch.distributed`` (``env://``) and `cloudtrain.distributed` read."""
        return {
            **self.variables(TORCHRUN),
            "MASTER_ADDR": master_addr,
            "MASTER_PORT": str(master_port),
        }

    def environment_without_launcher(self, master_addr: str, master_port: int) -> dict[str, str]:
        """The variables of a script that no launcher starts, which only `cloudtrain.distributed` reads.

        With several hosts, ``MASTER_ADDR`` and ``MASTER_PORT`` are added, as in AWS's images for PyTorch: scripts that
        take their rank from ``SM_HOSTS`` rely on them.
        """
        master = {"MASTER_ADDR": master_addr, "MASTER_PORT": str(master_port)}
        return {**self.variables(CLOUDTRAIN), **(master if self.host_count > 1 else {})}
