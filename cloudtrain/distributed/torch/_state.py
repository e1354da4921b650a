"""From ``init`` to ``shutdown``: the world, its process sets, and what joins their ranks."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Callable

import torch
import torch.distributed as dist

from cloudtrain.distributed.errors import InvalidArgument, NotInitialized
from cloudtrain.distributed.negotiation.client import NegotiationClient
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.torch._shared_memory import SharedMemory
from cloudtrain.distributed.torch._thread_work import ThreadWork
from cloudtrain.distributed.world import World

global_process_set = ProcessSet(None)
"""All ranks."""


@dataclass(frozen=True)
class Groups:
    """One process set's groups of ``torch.distributed``; both have the same ranks."""

    ordered: Any
    """For what all ranks run in the same order by themselves."""
    negotiated: Any
    """For what they run in the order of responses."""


@dataclass(frozen=True)
class Context:
    """What ``init`` sets up. A world of one rank has no process group."""

    world: World
    owns_group: bool
    client: NegotiationClient
    timeout: float
    """Seconds that one collective may take."""
    device: torch.device
    """Where collectives run that no tensor has a say in; torch's current device is another in each thread."""
    groups: dict[int, Groups] = field(default_factory=dict)
    """By process set."""
    sets: list[ProcessSet] = field(default_factory=list)
    memory: dict[Any, SharedMemory] = field(default_factory=dict)
    """By group, where its ranks are on one machine."""
    claims: set[str] = field(default_factory=set)
    """What only the first optimizer does."""
    pid: int = field(default_factory=os.getpid)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "cloudtrain-turns"))

    @property
    def alone(self) -> bool:
        return self.world.size == 1

    def control_device(self) -> torch.device:
        """Where the group can send small things (shapes, pickles): the CPU if it has a backend for it."""
        if self.alone or "cpu" in dist.get_backend_config():
            return torch.device("cpu")
        return self.device

    def set_id(self, process_set: ProcessSet) -> int:
        """Raises InvalidArgument where this rank is not in the set, or nobody knows the set."""
        if not isinstance(process_set, ProcessSet):
            raise InvalidArgument(f"process_set={process_set!r} is not a ProcessSet")
        process_set.rank()
        assert process_set.process_set_id is not None
        return process_set.process_set_id

    def open_groups(self, ranks: list[int]) -> Groups:
        """To be called by all ranks of the world, in the same order."""
        limit = timedelta(seconds=self.timeout)
        return Groups(dist.new_group(ranks, timeout=limit), dist.new_group(ranks, timeout=limit))

    def close_groups(self, set_id: int) -> None:
        """Forget a process set's groups."""
        groups = self.groups.pop(set_id)
        for group in (groups.ordered, groups.negotiated):
            if group is not dist.GroupMember.NON_GROUP_MEMBER:
                dist.destroy_process_group(group)

    def run_in_thread(self, work: Callable[[], None]) -> ThreadWork:
        """Start what waits for other ranks itself, after all that was started so before."""

        def run() -> None:
            if self.device.type == "cuda":
                torch.cuda.set_device(self.device)
            with torch.inference_mode():  # which the tensors may be of, and this thread is not in
                work()

        return ThreadWork(self._thread.submit(run), "ADASUM")

    def close_threads(self) -> None:
        self._thread.shutdown(wait=False)


_context: Context | None = None


def current() -> Context:
    """Raises NotInitialized before ``init`` and after ``shutdown``."""
    if _context is None:
        raise NotInitialized
    return _context


def set_current(context: Context | None) -> Context | None:
    """Make ``context`` the current one; returns the one before."""
    global _context
    before, _context = _context, context
    return before


def is_initialized() -> bool:
    """Whether `init` was called and `shutdown` was not."""
    return _context is not None


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


def is_homogeneous() -> bool:
    """Whether every host has the same number of ranks."""
    world = current().world
    return world.local_size * world.cross_size == world.size
