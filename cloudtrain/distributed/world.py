"""This process's rank among the ranks of the job, read from the environment.

The variables are those of ``torchrun``, of cloudtrain's launchers (see `cloudtrain.contract.RankSlot.environment`), of
``mpirun``, of ``horovodrun``, of Slurm's ``srun``, or of PyTorch Lightning.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from cloudtrain.contract.rank import LauncherEnv, started_by_srun, with_rank
from cloudtrain.distributed.errors import InvalidArgument

LOOPBACK = "127.0.0.1"
"""The address on which ranks of one machine listen. Other machines cannot reach it."""


@dataclass(frozen=True)
class World:
    """Horovod's six numbers, and the address of rank 0. The default is a single process."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """The rank's number on its host."""
    local_size: int = 1
    cross_rank: int = 0
    """The number of the rank's host."""
    cross_size: int = 1
    master_addr: str = ""
    """Empty if the launcher does not set it; `find_master` in `cloudtrain.distributed.negotiation` then finds it."""
    master_port: int = 0

    @property
    def on_one_machine(self) -> bool:
        """Whether all ranks are on one host."""
        return self.local_size == self.size

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> World:
        """Read the launcher's variables. Without them, the world is this process alone.

        If only rank and size are set, as by Kubernetes operators, every rank counts as alone on its host.

        Raises:
            InvalidArgument: a variable is missing, is not a number, or contradicts the others.
        """
        by_srun = started_by_srun(environ)
        environ = with_rank(environ)
        words = LauncherEnv.detect(environ)
        if words.rank not in environ and words.size not in environ:
            return cls()
        rank, size = _number(environ, words.rank), _number(environ, words.size)
        local_rank, local_size = _number(environ, words.local_rank, 0), _number(environ, words.local_size, 1)
        cross_rank = _number(environ, words.cross_rank, rank // max(local_size, 1))
        cross_size = _number(environ, words.cross_size, -(-size // max(local_size, 1)))
        for what, value, limit in (
            (words.rank, rank, size),
            (words.local_rank, local_rank, local_size),
            (words.cross_rank or "GROUP_RANK", cross_rank, cross_size),
        ):
            if not 0 <= value < limit:
                raise InvalidArgument(f"{what}={value} is not below its world's size, {limit}")
        if size == 1:
            return cls()
        missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not environ.get(name)]
        if missing and local_size < size and not by_srun:
            raise InvalidArgument(
                f"{words.size}={size} on several hosts, with {' and '.join(missing)} not set",
                hint="Set MASTER_ADDR and MASTER_PORT to where rank 0 listens (mpirun: -x MASTER_ADDR=HOST "
                "-x MASTER_PORT=29500), or start the ranks with cloudtrain or torchrun.",
            )
        address, port = environ.get("MASTER_ADDR", ""), _number(environ, "MASTER_PORT", 0)
        return cls(rank, size, local_rank, local_size, cross_rank, cross_size, address, port)


def _number(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environ.get(name)
    if text is None:
        if default is None:
            raise InvalidArgument(f"{name} is not set, although other variables of a distributed job are")
        return default
    try:
        return int(text)
    except ValueError:
        raise InvalidArgument(f"{name}={text!r} is not a whole number") from None
