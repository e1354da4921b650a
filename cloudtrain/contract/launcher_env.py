"""The environment variables by which each launcher identifies a rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass


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

        `TORCHRUN` takes precedence: cloudtrain sets its variables in every rank, whichever launcher starts it.
        `CLOUDTRAIN` comes last: a script without launcher may start ranks itself, which inherit its variables.
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
"""Set in a job without launcher. Other libraries do not know them, and see an ordinary process."""


def with_rank(environ: Mapping[str, str]) -> Mapping[str, str]:
    """``environ``, with the variables of `TORCHRUN` that PyTorch Lightning leaves out when it starts the ranks itself.

    Its ranks have ``WORLD_SIZE``, ``LOCAL_RANK`` and ``NODE_RANK``. The number of hosts is that of the job, or the
    least that is possible.
    """
    if TORCHRUN.rank in environ:
        return environ
    try:
        size, local_rank, host = (int(environ[name]) for name in ("WORLD_SIZE", "LOCAL_RANK", "NODE_RANK"))
        host_count = max(int(environ.get("SM_HOST_COUNT", 1)) if host else 1, host + 1)
    except (KeyError, ValueError):
        return environ
    local_size = size // host_count
    derived = (host * local_size + local_rank, size, local_rank, local_size, host, host_count)
    return {**dict(zip(astuple(TORCHRUN), map(str, derived))), **environ}
