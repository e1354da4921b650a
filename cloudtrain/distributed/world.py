"""This process's place among the ranks of the job, read from the environment.

The variables are those of ``torchrun`` and of cloudtrain's own launchers
(see `cloudtrain.contract.RankSlot.environment`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from cloudtrain.distributed.errors import InvalidArgument


@dataclass(frozen=True)
class World:
    """Horovod's six numbers, and where rank 0 listens. The default is a process alone."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """This rank among the ranks of its host."""
    local_size: int = 1
    cross_rank: int = 0
    """This rank's host among the hosts."""
    cross_size: int = 1
    master_addr: str = ""
    master_port: int = 0

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> World:
        """One rank where ``RANK`` and ``WORLD_SIZE`` are not set.

        Where only those two are set, every rank counts as alone on its host, as Kubernetes operators
        start them.

        Raises:
            InvalidArgument: a variable is missing, is not a number, or does not fit the others.
        """
        if "RANK" not in environ and "WORLD_SIZE" not in environ:
            return cls()
        rank, size = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
        local_rank, local_size = _number(environ, "LOCAL_RANK", 0), _number(environ, "LOCAL_WORLD_SIZE", 1)
        cross_rank = _number(environ, "GROUP_RANK", rank // max(local_size, 1))
        cross_size = _number(environ, "GROUP_WORLD_SIZE", -(-size // max(local_size, 1)))
        for what, value, limit in (
            ("RANK", rank, size),
            ("LOCAL_RANK", local_rank, local_size),
            ("GROUP_RANK", cross_rank, cross_size),
        ):
            if not 0 <= value < limit:
                raise InvalidArgument(f"{what}={value} is not below its world's size, {limit}")
        if size == 1:
            return cls()
        if not environ.get("MASTER_ADDR"):
            raise InvalidArgument(
                f"WORLD_SIZE={size}, but MASTER_ADDR is not set",
                hint="Set MASTER_ADDR and MASTER_PORT to where rank 0 listens, or start by torchrun.",
            )
        port = _number(environ, "MASTER_PORT")
        return cls(rank, size, local_rank, local_size, cross_rank, cross_size, environ["MASTER_ADDR"], port)


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
