"""``init`` and ``shutdown``, and process sets added and removed in between."""

from __future__ import annotations

import atexit
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import Any

import torch.distributed as dist

from cloudtrain.contract.rank import LauncherEnv, with_rank
from cloudtrain.distributed import _timeline, options
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.negotiation.client import NegotiationClient
from cloudtrain.distributed.negotiation.messages import GLOBAL, CollectiveResponse, add_set, remove_set
from cloudtrain.distributed.negotiation.rendezvous import all_have_read, connect, find_master
from cloudtrain.distributed.options import cycle_seconds, logger
from cloudtrain.distributed.process_set import ProcessSet, process_sets_of, with_id
from cloudtrain.distributed.torch import _position, _state
from cloudtrain.distributed.torch._devices import choose_device
from cloudtrain.distributed.torch._failures import abort, end_work, on_death, script_failed
from cloudtrain.distributed.torch._join import contribute
from cloudtrain.distributed.torch._launches import Handle
from cloudtrain.distributed.torch._ops import combine
from cloudtrain.distributed.torch._rendezvous import init_process_group, on_loopback, shared_store
from cloudtrain.distributed.torch._state import Context, Groups, global_process_set
from cloudtrain.distributed.world import World
from cloudtrain.observe import flight_recorder, inquiry
from cloudtrain.observe.checkpointing import recover

__all__ = [
    "add_process_set",
    "init",
    "process_set_by_id",
    "remove_process_set",
    "shutdown",
]

_init_arguments: dict[str, Any] = {}
"""The arguments of the last `init`, for `reinit`."""


def init(
    comm: Any = None,
    process_sets: Iterable[ProcessSet] | str | None = None,
    *,
    backend: str | None = None,
    start_timeout: float | None = None,
    timeout: float | None = None,
) -> None:
    """Initialize, and wait for the other ranks of the job. Further calls do nothing.

    The world is read from the environment (`World.from_environ`). Without a launcher, this process is the only rank,
    and no process group is created. A process group that the script created is used as it is.

    Args:
        comm: None, or a list of all ranks, as in Horovod. Use process sets for a subset of the ranks.
        process_sets: registered on all ranks; the same on all ranks. More can be added later (in Horovod only with
            ``process_sets="dynamic"``, which counts as an empty list here).
        backend: a backend of ``torch.distributed``. By default Gloo for CPU tensors and NCCL for GPU tensors. The
            current CUDA device becomes number ``local_rank`` of the visible GPUs, modulo their count. If ranks share a
            GPU, or have none, Gloo is used for GPU tensors too: rank 0 warns.
        start_timeout: seconds to wait for the other ranks; by default ``CLOUDTRAIN_START_TIMEOUT`` or 300.
        timeout: seconds that one collective may take; by default ``CLOUDTRAIN_COLLECTIVE_TIMEOUT``, or 600 with NCCL,
            or else 1800.

    Raises:
        InvalidArgument: the environment or the arguments are contradictory; or ``backend`` is NCCL's, and ranks share a
            GPU or have none.
        CollectiveError: the rendezvous failed. Names the missing ranks.
    """
    global _init_arguments
    if _state.is_initialized():
        return
    options.set_up_logging()
    _init_arguments = {"process_sets": process_sets, "backend": backend, "timeout": timeout}
    owns_group = not dist.is_initialized()
    world = World.from_environ() if owns_group else _world_of_group()
    sets = process_sets_of(process_sets)
    if comm is not None and (not isinstance(comm, list) or sorted(comm) != list(range(world.size))):
        raise InvalidArgument(
            f"comm={comm!r}: init takes all {world.size} ranks of the job",
            hint="Use init(process_sets=[ProcessSet([...])]) for a subset of the ranks.",
        )
    start_timeout = options.start_timeout() if start_timeout is None else start_timeout
    if timeout is None:
        timeout = options.collective_timeout(default=0.0)  # 0: that of the backend
    device = choose_device(world, backend)
    if world.size > 1:
        # Optimizers import it eventually, and the default arguments of its functions refer to the process group of that
        # moment. Then shutdown() could not end the group's threads, and Python would abort at exit.
        import_module("torch.distributed.nn.functional")
        if owns_group:
            world = on_loopback(find_master(world, start_timeout))
            init_process_group(world, device, backend, start_timeout, timeout)
            all_have_read()
            world = _with_cross_rank(world, start_timeout)
    backends = dist.get_backend_config() if dist.is_initialized() else ""
    timeout = timeout or options.default_timeout(backends)
    client = NegotiationClient(contribute, timeout, cycle_seconds())
    client.on_death = on_death
    lazy = "nccl" in backends and device.type == "cuda"
    context = Context(world, owns_group and world.size > 1, client, timeout, device, waits_lazily=lazy)
    if world.size > 1:
        _connect(context, start_timeout)
    global_process_set.attach(GLOBAL, list(range(world.size)), world.rank)
    _state.set_current(context)
    recover()
    logger.info("rank %d of %d: %s", world.rank, world.size, world)
    if not context.alone:
        inquiry.answer_with(_position.answer)
        inquiry.answer_with(flight_recorder.answer)
    try:
        _timeline.attach(world, None if context.alone else context.client.channel.ask_time)
        for process_set in sets:
            add_process_set(process_set)
    except BaseException:
        shutdown()
        raise


def _with_cross_rank(world: World, start_timeout: float) -> World:
    """``world`` with cross rank and cross size if the launcher (mpirun) does not set them."""
    environ = with_rank(os.environ)
    if LauncherEnv.detect(environ).cross_rank in environ or world.local_size == world.size:
        return world
    store = shared_store(world, start_timeout)
    store.set(f"host/{world.rank}", f"{socket.gethostname()} {world.local_rank}")
    found = [store.get(f"host/{rank}").decode().split(" ") for rank in range(world.size)]
    # As in Horovod: among the ranks with the same local rank.
    hosts = [host for host, local_rank in found if int(local_rank) == world.local_rank]
    return replace(world, cross_rank=hosts.index(socket.gethostname()), cross_size=len(hosts))


def _connect(context: Context, start_timeout: float) -> None:
    world = context.world
    try:
        connect(
            context.client,
            shared_store(world, start_timeout),
            world,
            combine,
            start_timeout=start_timeout,
            timeout=context.timeout,
        )
        ranks = list(range(world.size))
        negotiated = dist.new_group(ranks, timeout=timedelta(seconds=context.timeout))
        groups = context.groups[GLOBAL] = Groups(dist.group.WORLD, negotiated)
        for group in (groups.ordered, groups.negotiated):
            context.share_memory(group, start_timeout)
    except BaseException:
        if context.owns_group:
            dist.destroy_process_group()
        raise


def reinit(start_timeout: float) -> None:
    """`shutdown`, then `init` with the arguments of the last call. For use after a failure of other ranks."""
    shutdown()
    init(start_timeout=start_timeout, **_init_arguments)


def shutdown() -> None:
    """Leave the process group; ``init`` may follow. A process group that the script created is kept.

    GPU work of this rank ends first, unless a rank has died or an exception ends the script; then the work is aborted.
    """
    context = _state.set_current(None)
    if context is None or context.pid != os.getpid():
        return  # a forked child must not touch its parent's process group
    ended = context.alone or not context.waits_lazily or end_work(context, failed=script_failed())
    _timeline.detach()
    for process_set in [global_process_set, *context.sets]:
        process_set.detach()
    if not context.alone:
        context.client.close()
    for memory in context.memory.values():
        memory.close()
    context.close_threads()
    if context.owns_group and dist.is_initialized():
        if not ended:
            abort(context)
        dist.destroy_process_group()


atexit.register(shutdown)


def _world_of_group() -> World:
    """The world of the script's process group. Hosts and the master address come from the environment."""
    known = {"RANK": str(dist.get_rank()), "WORLD_SIZE": str(dist.get_world_size())}
    return World.from_environ(
        {"MASTER_ADDR": socket.gethostname(), "MASTER_PORT": "0", **with_rank(os.environ), **known}
    )


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a process set. All ranks call this with the same ranks, and wait for one another.

    Raises:
        InvalidArgument: a rank does not exist, or the set is already registered. Also a ValueError.
        CollectiveError: the ranks disagree.
    """
    context = _state.current()
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    ranks = process_set.check_new(context.world.size, context.sets)
    process_set.attach(_agree_on(context, ranks), ranks, context.world.rank)
    context.sets.append(process_set)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a process set; all ranks call this. Returns False for the global set or one that is not registered."""
    context = _state.current()
    set_id = process_set.process_set_id
    if process_set not in context.sets or set_id is None:
        return False
    if not context.alone:
        request = remove_set(set_id)
        Handle(
            request.label,
            context.client.submit(request, lambda _: context.close_groups(set_id)),
            lambda: None,
        ).wait()
    context.sets.remove(process_set)
    process_set.detach()
    return True


def process_set_by_id(set_id: int) -> ProcessSet:
    """The process set with this ID. Raises InvalidArgument if there is none."""
    return with_id(set_id, [global_process_set, *_state.current().sets])


def _agree_on(context: Context, ranks: list[int]) -> int:
    if context.alone:
        return len(context.sets) + 1
    request = add_set(ranks)
    agreed: list[int] = []

    def open_groups(response: CollectiveResponse) -> None:
        agreed.extend(response.per_rank)
        context.groups[agreed[0]] = context.open_groups(ranks)

    Handle(request.label, context.client.submit(request, open_groups), lambda: None).wait()
    return agreed[0]
