"""From ``init`` to ``shutdown``: the world, its process sets, and what joins their ranks."""

from __future__ import annotations

import atexit
import os
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from importlib import import_module
from typing import Any, Callable

import torch
import torch.distributed as dist

from cloudtrain.contract.launcher_env import LauncherEnv
from cloudtrain.distributed import _timeline, options
from cloudtrain.distributed.errors import InvalidArgument, NotInitialized
from cloudtrain.distributed.negotiation.client import Engine
from cloudtrain.distributed.negotiation.messages import GLOBAL
from cloudtrain.distributed.negotiation.rendezvous import connect, located
from cloudtrain.distributed.options import cycle_seconds, logger
from cloudtrain.distributed.process_set import ProcessSet, process_sets_of
from cloudtrain.distributed.torch._rendezvous import join, shared_store
from cloudtrain.distributed.torch._shared_memory import SharedMemory, open_shared_memory
from cloudtrain.distributed.torch._thread_work import Turn
from cloudtrain.distributed.world import World

global_process_set = ProcessSet(None)
"""All ranks."""


@dataclass(frozen=True)
class Groups:
    """One process set's groups of ``torch.distributed``; both have the same ranks."""

    ordered: Any
    """For what all ranks run in the same order by themselves."""
    negotiated: Any
    """For what they run in the order of verdicts."""


@dataclass(frozen=True)
class Session:
    """What ``init`` sets up. A world of one rank has no process group."""

    world: World
    owns_group: bool
    engine: Engine
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
    _turns: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "cloudtrain-turns"))

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

    def in_turn(self, work: Callable[[], None]) -> Turn:
        """Start what waits for other ranks itself, after all that was started so before."""

        def run() -> None:
            if self.device.type == "cuda":
                torch.cuda.set_device(self.device)
            with torch.inference_mode():  # which the tensors may be of, and this thread is not in
                work()

        return Turn(self._turns.submit(run), "ADASUM")


_session: Session | None = None
_init_arguments: dict[str, Any] = {}
"""Of the last `init`; for `rejoin`."""


def current() -> Session:
    """Raises NotInitialized before ``init`` and after ``shutdown``."""
    if _session is None:
        raise NotInitialized
    return _session


def init(
    comm: Any = None,
    process_sets: Iterable[ProcessSet] | str | None = None,
    *,
    backend: str | None = None,
    start_timeout: float | None = None,
    timeout: float | None = None,
) -> None:
    """Join the ranks of the job; a second call does nothing.

    The world is read from the environment (`World.from_environ`); without one this process is the only
    rank, and no process group is made. A process group that the script itself made is used as it is.

    Args:
        comm: Horovod's; None, or a list of all ranks. For some of the ranks make process sets.
        process_sets: made known to all ranks at once; the same on all ranks. Others may be added later
            (in Horovod only with ``process_sets="dynamic"``, which is taken as an empty list here).
        backend: of ``torch.distributed``; else Gloo for CPU tensors and, where there is CUDA, NCCL for GPU
            tensors. Then the current CUDA device becomes number ``local_rank``, if there is one.
        start_timeout: seconds to wait for the other ranks; else ``CLOUDTRAIN_START_TIMEOUT``, else 300.
        timeout: seconds that one collective may take; else ``CLOUDTRAIN_COLLECTIVE_TIMEOUT``, else 1800.

    Raises:
        InvalidArgument: the environment or an argument contradicts itself.
        CollectiveError: the ranks did not meet; says where, and which are missing.
    """
    global _session, _init_arguments
    if _session is not None:
        return
    options.set_up_logging()
    _init_arguments = {"process_sets": process_sets, "backend": backend, "timeout": timeout}
    owns_group = not dist.is_initialized()
    world = World.from_environ() if owns_group else _world_of_group()
    sets = process_sets_of(process_sets)
    if comm is not None and (not isinstance(comm, list) or sorted(comm) != list(range(world.size))):
        raise InvalidArgument(
            f"comm={comm!r}: a job of {world.size} ranks is joined by all of them",
            hint="Use init(process_sets=[ProcessSet([...])]) for some of the ranks.",
        )
    start_timeout = options.start_timeout() if start_timeout is None else start_timeout
    timeout = options.collective_timeout() if timeout is None else timeout
    device = torch.device("cpu")
    if backend != "gloo" and torch.cuda.is_available() and world.local_rank < torch.cuda.device_count():
        torch.cuda.set_device(world.local_rank)
        device = torch.device("cuda", world.local_rank)
    from cloudtrain.distributed.torch._join import stand_in

    if world.size > 1:
        # Optimizers import it sooner or later, and its functions' default arguments keep the group there is at
        # that moment: shutdown() could not end the group's threads then, and Python would abort at exit.
        import_module("torch.distributed.nn.functional")
        if owns_group:
            world = located(world, start_timeout)
            join(world, backend, start_timeout, timeout)
            world = _placed(world, start_timeout)
    engine = Engine(stand_in, timeout, cycle_seconds())
    session = Session(world, owns_group and world.size > 1, engine, timeout, device)
    if world.size > 1:
        _join_control(session, start_timeout)
    global_process_set.attach(GLOBAL, list(range(world.size)), world.rank)
    _session = session
    from cloudtrain.distributed.torch.process_sets import add_process_set

    logger.info("rank %d of %d: %s", world.rank, world.size, world)
    try:
        _timeline.attach(world, None if session.alone else session.engine.channel.ask_time)
        for process_set in sets:
            add_process_set(process_set)
    except BaseException:
        shutdown()
        raise


def _placed(world: World, start_timeout: float) -> World:
    """``world`` with this rank's host among the hosts, where the launcher does not tell it (mpirun)."""
    if LauncherEnv.detect(os.environ).cross_rank in os.environ or world.local_size == world.size:
        return world
    store = shared_store(world, start_timeout)
    store.set(f"host/{world.rank}", f"{socket.gethostname()} {world.local_rank}")
    told = [store.get(f"host/{rank}").decode().split(" ") for rank in range(world.size)]
    # as in Horovod: among the ranks that are at the same place of their hosts
    hosts = [host for host, local_rank in told if int(local_rank) == world.local_rank]
    return replace(world, cross_rank=hosts.index(socket.gethostname()), cross_size=len(hosts))


def _join_control(session: Session, start_timeout: float) -> None:
    from cloudtrain.distributed.torch._operation import combine

    world = session.world
    try:
        connect(
            session.engine,
            shared_store(world, start_timeout),
            world.rank,
            world.size,
            world.master_addr or socket.gethostname(),
            combine,
            start_timeout=start_timeout,
            timeout=session.timeout,
            warn_after=options.warn_after(),
        )
        ranks = list(range(world.size))
        negotiated = dist.new_group(ranks, timeout=timedelta(seconds=session.timeout))
        groups = session.groups[GLOBAL] = Groups(dist.group.WORLD, negotiated)
        if world.local_size == world.size:
            for group in (groups.ordered, groups.negotiated):
                memory = open_shared_memory(
                    shared_store(world, start_timeout), world.rank, world.size, session.timeout
                )
                if memory is not None:
                    session.memory[group] = memory
    except BaseException:
        if session.owns_group:
            dist.destroy_process_group()
        raise


def rejoin(start_timeout: float) -> None:
    """`shutdown`, and `init` with the arguments of the last one: after a failure of the other ranks."""
    shutdown()
    init(start_timeout=start_timeout, **_init_arguments)


def shutdown() -> None:
    """Leave the group; ``init`` may follow. A group that the script itself made is left alone."""
    global _session
    session, _session = _session, None
    if session is None or session.pid != os.getpid():
        return  # a child that was forked leaves its parent's group alone
    _timeline.detach()
    for process_set in [global_process_set, *session.sets]:
        process_set.detach()
    if not session.alone:
        session.engine.close()
    for memory in session.memory.values():
        memory.close()
    session._turns.shutdown(wait=False)
    if session.owns_group and dist.is_initialized():
        dist.destroy_process_group()


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


def is_homogeneous() -> bool:
    """Whether every host has the same number of ranks."""
    world = current().world
    return world.local_size * world.cross_size == world.size


def _world_of_group() -> World:
    """The group knows its ranks but not the hosts; where it met is told by the environment, if at all."""
    known = {"RANK": str(dist.get_rank()), "WORLD_SIZE": str(dist.get_world_size())}
    return World.from_environ(
        {"MASTER_ADDR": socket.gethostname(), "MASTER_PORT": "0", **os.environ, **known}
    )
