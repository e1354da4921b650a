"""From ``init`` to ``shutdown``: the world, and the process group that joins its ranks."""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass
from importlib import import_module

import torch
import torch.distributed as dist

from cloudtrain.distributed import _timeouts
from cloudtrain.distributed.errors import NotInitialized
from cloudtrain.distributed.torch._rendezvous import join
from cloudtrain.distributed.world import World


@dataclass(frozen=True)
class Session:
    """What ``init`` sets up. A world of one rank has no process group."""

    world: World
    owns_group: bool

    @property
    def alone(self) -> bool:
        return self.world.size == 1

    def control_device(self) -> torch.device:
        """Where the group can send small things (shapes, pickles): the CPU if it has a backend for it."""
        if "cpu" in dist.get_backend_config():
            return torch.device("cpu")
        return torch.device("cuda", torch.cuda.current_device())


_session: Session | None = None


def current() -> Session:
    """Raises NotInitialized before ``init`` and after ``shutdown``."""
    if _session is None:
        raise NotInitialized
    return _session


def init(
    *, backend: str | None = None, start_timeout: float | None = None, timeout: float | None = None
) -> None:
    """Join the ranks of the job; a second call does nothing.

    The world is read from the environment (`World.from_environ`); without one this process is the only
    rank, and no process group is made. A process group that the script itself made is used as it is.

    Args:
        backend: of ``torch.distributed``; else Gloo for CPU tensors and, where there is CUDA, NCCL for GPU
            tensors. Then the current CUDA device becomes number ``local_rank``, if there is one.
        start_timeout: seconds to wait for the other ranks; else ``CLOUDTRAIN_START_TIMEOUT``, else 300.
        timeout: seconds that one collective may take; else ``CLOUDTRAIN_COLLECTIVE_TIMEOUT``, else 1800.

    Raises:
        InvalidArgument: the environment contradicts itself.
        CollectiveError: the ranks did not meet; says where, and which are missing.
    """
    global _session
    if _session is not None:
        return
    if dist.is_initialized():
        _session = Session(_world_of_group(), owns_group=False)
        return
    world = World.from_environ()
    start_timeout = _timeouts.start_timeout() if start_timeout is None else start_timeout
    timeout = _timeouts.collective_timeout() if timeout is None else timeout
    if torch.cuda.is_available() and world.local_rank < torch.cuda.device_count():
        torch.cuda.set_device(world.local_rank)
    if world.size > 1:
        # Optimizers import it sooner or later, and its functions' default arguments keep the group there is at
        # that moment: shutdown() could not end the group's threads then, and Python would abort at exit.
        import_module("torch.distributed.nn.functional")
        join(world, backend, start_timeout, timeout)
    _session = Session(world, owns_group=world.size > 1)


def shutdown() -> None:
    """Leave the group; ``init`` may follow. A group that the script itself made is left alone."""
    global _session
    if _session is not None and _session.owns_group and dist.is_initialized():
        dist.destroy_process_group()
    _session = None


atexit.register(shutdown)


def is_initialized() -> bool:
    """Whether `init` was called and `shutdown` was not."""
    return _session is not None


def rank() -> int:
    """This process among all, from 0. Raises NotInitialized before `init`, as do the five below."""
    return current().world.rank


def size() -> int:
    """The number of ranks."""
    return current().world.size


def local_rank() -> int:
    """This process among those of its host, from 0."""
    return current().world.local_rank


def local_size() -> int:
    """The number of ranks on this host."""
    return current().world.local_size


def cross_rank() -> int:
    """This host among the hosts, from 0."""
    return current().world.cross_rank


def cross_size() -> int:
    """The number of hosts."""
    return current().world.cross_size


def _world_of_group() -> World:
    """The group knows its ranks but not the hosts; where it met is of no more interest."""
    known = {"RANK": str(dist.get_rank()), "WORLD_SIZE": str(dist.get_world_size())}
    return World.from_environ({"MASTER_ADDR": "unknown", "MASTER_PORT": "0", **os.environ, **known})
