"""What launchers tell a rank in its environment, each in words of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """Names of the variables that hold a rank's six numbers."""

    rank: str
    size: str
    local_rank: str
    local_size: str
    cross_rank: str
    cross_size: str


OURS = Words("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
"""Of torchrun and cloudtrain."""
_OTHERS = (
    Words(
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "OMPI_COMM_WORLD_CROSS_RANK",
        "OMPI_COMM_WORLD_CROSS_SIZE",
    ),
    Words("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "", ""),  # MPICH, Intel MPI
    Words(
        "HOROVOD_RANK",
        "HOROVOD_SIZE",
        "HOROVOD_LOCAL_RANK",
        "HOROVOD_LOCAL_SIZE",
        "HOROVOD_CROSS_RANK",
        "HOROVOD_CROSS_SIZE",
    ),
)


def spoken(environ: Mapping[str, str]) -> Words:
    """The first of the launchers that has set a rank or a size; ours where none has."""
    for words in (OURS, *_OTHERS):
        if words.rank in environ or words.size in environ:
            return words
    return OURS
