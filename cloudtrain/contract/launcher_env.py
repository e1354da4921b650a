"""The environment variables by which each launcher identifies a rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
        """
        for names in (TORCHRUN, OPEN_MPI, MPICH, HOROVODRUN):
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
