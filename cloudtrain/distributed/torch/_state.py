"""The context between ``init`` and ``shutdown``: the world, its process sets and their process groups."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Callable

import torch
import torch.distributed as dist

from cloudtrain.distributed._api import BuildQueries, WorldAccessors
from cloudtrain.distributed.errors import InvalidArgument, NotInitialized
from cloudtrain.distributed.negotiation.client import NegotiationClient, SequenceNumbers
from cloudtrain.distributed.negotiation.messages import GLOBAL
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.torch._rendezvous import shared_store
from cloudtrain.distributed.torch._shared_memory import SharedMemory, open_shared_memory
from cloudtrain.distributed.torch._thread_work import StreamWork, WorkQueue
from cloudtrain.distributed.world import World

__all__ = [
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "rocm_built",
    "size",
]

global_process_set = ProcessSet(None)
"""All ranks."""


@dataclass(frozen=True)
class Groups:
    """The ``torch.distributed`` groups of one process set; both have the same ranks."""

    ordered: Any
    """For collectives that all ranks launch in the same order by themselves."""
    negotiated: Any
    """For collectives launched in the order of the coordinator's responses."""


class InFlight:
    """Works that were launched and may not have ended, for backends whose ``wait`` only orders streams (NCCL).

    They are in the order of their launches, each with its process group.

    A work whose group was aborted never counts as successful: its kernel has returned, but without a valid result.
    """

    def __init__(self) -> None:
        self._works: dict[int, tuple[Any, Any]] = {}
        """By id, with the group. The reference keeps another work from getting the same id."""
        self._aborted: set[Any] = set()
        self._lock = threading.Lock()

    def add(self, work: Any, group: Any) -> None:
        with self._lock:
            self._drop_ended()
            self._works.update((id(part), (part, group)) for part in parts_of(work))

    @property
    def aborted(self) -> bool:
        """Whether a group was aborted."""
        return bool(self._aborted)

    def ended(self) -> bool:
        """Whether every work has ended successfully."""
        with self._lock:
            self._drop_ended()
            return not self._works

    def group_of(self, work: Any) -> Any:
        """The group of a work that has not ended successfully; None if it has."""
        with self._lock:
            self._drop_ended()
            for part in parts_of(work):
                found = self._works.get(id(part))
                if found is not None and not self._ended(*found):
                    return found[1]
            return None

    def aborts(self, groups: Iterable[Any]) -> None:
        """Record that ``groups`` are about to be aborted."""
        with self._lock:
            self._drop_ended()
            self._aborted.update(groups)

    def _drop_ended(self) -> None:
        """Drop the oldest ones that have ended. Each of them costs a query of the GPU, but no wait for it."""
        while self._works:
            oldest = next(iter(self._works))
            if not self._ended(*self._works[oldest]):
                return
            del self._works[oldest]

    def _ended(self, work: Any, group: Any) -> bool:
        return group not in self._aborted and bool(work.is_completed())


def parts_of(work: Any) -> Iterator[Any]:
    """The works of the backend that ``work`` combines, or itself."""
    if not hasattr(work, "works"):
        yield work
        return
    for part in work.works:
        yield from parts_of(part)


Exchange = Hashable
"""The identity of an exchange: the layer and direction, and the values that must match between ranks."""

MOST = 10_000
"""The most exchanges to remember."""


class AgreedOrder:
    """The order of the exchanges inside layers, as the ranks have agreed on it.

    All ranks request the same exchanges. An exchange is negotiated the first time that it follows the one before it,
    and from then on it is `expected` there. Where different exchanges have followed the same one, each is always
    negotiated. A rank that leaves the order therefore negotiates, and an error or a warning reports it: exchanges that
    do not match are never started. Every rank decides by what it has requested since the last `restart`, which is the
    same on all ranks.
    """

    def __init__(self) -> None:
        self.group: Any = None
        """The process group of the exchanges that are not negotiated."""
        self.watched = False
        """Whether a thread warns of ranks that do not take part."""
        self.restart()

    def restart(self, joins: int = 0) -> None:
        """Forget the order: after a failure, and after a `join`, because a joined rank has requested nothing.

        Args:
            joins: how often all ranks have joined.
        """
        self.joins = joins
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._count = 0
        self._last: Exchange = None
        self._next: dict[Exchange, Exchange] = {}
        """For each exchange, the only one that has followed it; None if there were several."""

    def number(self, layer: Any) -> int:
        """The number of ``layer``, in the order in which layers were first used."""
        if layer not in self._numbers:
            self._count += 1
            self._numbers[layer] = self._count
        return self._numbers[layer]

    def expects(self, exchange: Exchange) -> bool:
        """Whether all ranks have agreed that ``exchange`` is next."""
        return self._next.get(self._last) == exchange

    def passed(self, exchange: Exchange) -> None:
        """Record that all ranks have requested ``exchange``."""
        if len(self._next) > MOST:  # layers that are used once
            self.restart(self.joins)
        known = self._next.setdefault(self._last, exchange)
        if known != exchange:
            self._next[self._last] = None
        self._last = exchange


@dataclass(frozen=True)
class Context:
    """The initialized state. A world of one rank has no process group."""

    world: World
    owns_group: bool
    client: NegotiationClient
    timeout: float
    """Seconds that one collective may take."""
    device: torch.device
    """For collectives without a tensor that determines it; torch's current device may differ between threads."""
    waits_lazily: bool = False
    """Whether the wait for a work only orders streams, as with NCCL, and does not show that it is done."""
    in_flight: InFlight = field(default_factory=InFlight)
    """The works that were launched, if `waits_lazily`."""
    groups: dict[int, Groups] = field(default_factory=dict)
    """By process set."""
    sets: list[ProcessSet] = field(default_factory=list)
    memory: dict[Any, SharedMemory] = field(default_factory=dict)
    """By group, if all of its ranks are on this machine."""
    claims: set[str] = field(default_factory=set)
    """Features that only one optimizer may use, such as autotuning, and that are in use."""
    layers: AgreedOrder = field(default_factory=AgreedOrder)
    """The exchanges inside layers, and their process group."""
    pid: int = field(default_factory=os.getpid)
    _thread: WorkQueue = field(default_factory=lambda: WorkQueue("ADASUM"))

    @property
    def alone(self) -> bool:
        return self.world.size == 1

    def control_device(self) -> torch.device:
        """The device for small control data (shapes, pickles): the CPU if the group has a backend for it."""
        if self.alone or "cpu" in dist.get_backend_config():
            return torch.device("cpu")
        return self.device

    def set_id(self, process_set: ProcessSet) -> int:
        """The ID of the set. Raises InvalidArgument if it is not registered or this rank is not a member."""
        if not isinstance(process_set, ProcessSet):
            raise InvalidArgument(f"process_set={process_set!r} is not a ProcessSet")
        process_set.rank()
        assert process_set.process_set_id is not None
        return process_set.process_set_id

    def open_groups(self, ranks: list[int]) -> Groups:
        """Create a process set's groups. All ranks of the world call it, in the same order."""
        return Groups(self.open_group(ranks), self.open_group(ranks))

    def open_group(self, ranks: list[int]) -> Any:
        """Create one group. All ranks of the world call it, in the same order."""
        return dist.new_group(ranks, timeout=timedelta(seconds=self.timeout))

    def open_layer_group(self) -> None:
        """Create the group of exchanges inside layers. All ranks of the world call it, in the same order."""
        group = self.open_group(list(range(self.world.size)))
        if not self.waits_lazily:  # the tensors are not on the CPU
            self.share_memory(group, self.timeout)
        self.layers.group = group

    def share_memory(self, group: Any, start_timeout: float) -> None:
        """Let ``group``, of all ranks, reduce CPU tensors in shared memory if the ranks are on one machine."""
        world = self.world
        if world.on_one_machine:
            store = shared_store(world, start_timeout)
            memory = open_shared_memory(store, world.rank, world.size, self.timeout)
            if memory is not None:
                self.memory[group] = memory

    def numbers_of(self, group: Any) -> SequenceNumbers | None:
        """The numbers of what is launched in ``group`` without negotiation, if joined ranks take part in it."""
        if group is self.groups[GLOBAL].ordered:
            return self.client.sequence_numbers
        return self.client.layer_numbers if group is self.layers.group else None

    def close_groups(self, set_id: int) -> None:
        """Destroy a process set's groups."""
        groups = self.groups.pop(set_id)
        for group in (groups.ordered, groups.negotiated):
            if group is not dist.GroupMember.NON_GROUP_MEMBER:
                dist.destroy_process_group(group)

    def launched(self, work: Any, group: Any) -> Any:
        """Record ``work`` of ``group`` if a wait does not show that it is done. Returns ``work``."""
        if self.waits_lazily and work is not None:
            self.in_flight.add(work, group)
        return work

    def run_in_thread(self, work: Callable[[], None]) -> Any:
        """Run work that itself waits for other ranks in a thread, after all earlier such work.

        Its GPU kernels follow those of the current stream, and the streams that wait for the work follow them.
        """
        device = self.device
        if device.type != "cuda":
            return self._thread.put(_in_inference_mode(work))
        stream = torch.cuda.current_stream(device)
        ended = torch.cuda.Event()  # type: ignore[no-untyped-call]

        def run() -> None:
            with torch.cuda.device(device), torch.cuda.stream(stream):
                _in_inference_mode(work)()
                ended.record(stream)

        return StreamWork(self._thread.put(run), ended, device)

    def close_threads(self) -> None:
        self._thread.close()


def _in_inference_mode(work: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        with torch.inference_mode():  # the mode is per thread, and the tensors may be inference tensors
            work()

    return run


_context: Context | None = None


def current() -> Context:
    """The current context. Raises NotInitialized before ``init`` and after ``shutdown``."""
    if _context is None:
        raise NotInitialized
    return _context


def current_or_none() -> Context | None:
    """The current context, if there is one."""
    return _context


def set_current(context: Context | None) -> Context | None:
    """Replace the current context; returns the previous one."""
    global _context
    before, _context = _context, context
    return before


def is_initialized() -> bool:
    """Whether `init` was called and `shutdown` was not."""
    return _context is not None


def current_world() -> World:
    """Raises NotInitialized."""
    return current().world


_accessors = WorldAccessors(current_world)
rank = _accessors.rank
size = _accessors.size
local_rank = _accessors.local_rank
local_size = _accessors.local_size
cross_rank = _accessors.cross_rank
cross_size = _accessors.cross_size
is_homogeneous = _accessors.is_homogeneous


class _TorchBuild(BuildQueries):
    def mpi_built(self) -> bool:
        """False: MPI may start the ranks, but never carries their tensors."""
        return False

    def gloo_built(self) -> bool:
        """Whether PyTorch was built with Gloo."""
        return dist.is_gloo_available()

    def nccl_built(self) -> int:
        """NCCL's version as a number (22304 for 2.23.4); 0 without NCCL or CUDA."""
        if not (torch.cuda.is_available() and dist.is_nccl_available()):
            return 0
        major, minor, patch = (*torch.cuda.nccl.version(), 0, 0)[:3]  # type: ignore[no-untyped-call]
        return int(major) * 10000 + int(minor) * 100 + int(patch)

    def cuda_built(self) -> bool:
        return torch.version.cuda is not None

    def rocm_built(self) -> bool:
        return torch.version.hip is not None


_build = _TorchBuild()
mpi_built = _build.mpi_built
mpi_enabled = _build.mpi_enabled
mpi_threads_supported = _build.mpi_threads_supported
gloo_built = _build.gloo_built
gloo_enabled = _build.gloo_enabled
nccl_built = _build.nccl_built
cuda_built = _build.cuda_built
rocm_built = _build.rocm_built
ddl_built = _build.ddl_built
ccl_built = _build.ccl_built
