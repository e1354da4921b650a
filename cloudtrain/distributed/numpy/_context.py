"""``init`` and ``shutdown``, the backend between them, and the world and process sets that it provides."""

from __future__ import annotations

import atexit
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import Any

from cloudtrain.distributed._api import WorldAccessors
from cloudtrain.distributed.errors import InvalidArgument, NotInitialized
from cloudtrain.distributed.negotiation.messages import GLOBAL
from cloudtrain.distributed.numpy._backend import Backend, SingleRank
from cloudtrain.distributed.process_set import ProcessSet, process_sets_of, with_id
from cloudtrain.distributed.world import World

__all__ = [
    "add_process_set",
    "barrier",
    "cross_rank",
    "cross_size",
    "global_process_set",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "process_set_by_id",
    "rank",
    "remove_process_set",
    "shutdown",
    "size",
]

BACKENDS = {"gloo": "torch", "mpi": "mpi4py"}
"""The package each backend needs. The first backend whose package is installed is the default."""

global_process_set = ProcessSet(None)
"""All ranks."""
_backend: Backend | None = None


def current() -> Backend:
    """Raises NotInitialized before ``init`` and after ``shutdown``."""
    if _backend is None:
        raise NotInitialized
    return _backend


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


def collectives_of(process_set: ProcessSet) -> SingleRank:
    """Return the collectives among the ranks of ``process_set``. Raises NotInitialized, InvalidArgument."""
    backend = current()
    if not isinstance(process_set, ProcessSet):
        raise InvalidArgument(f"process_set={process_set!r} is not a ProcessSet")
    process_set.rank()  # raises if this process is not in the set
    return backend if process_set.size() > 1 else SingleRank()


def init(
    comm: Any = None,
    process_sets: Iterable[ProcessSet] | str | None = None,
    *,
    backend: str | None = None,
    start_timeout: float | None = None,
    timeout: float | None = None,
) -> None:
    """Connect the ranks of the job. A second call does nothing.

    Args:
        comm: An mpi4py communicator. Its ranks become the ranks of the job. It is duplicated, not used itself.
        process_sets: Sets to register with all ranks. Identical on all ranks.
        backend: "gloo" (over `cloudtrain.distributed.torch`, whose ranks are reused if it is already
            initialized) or "mpi" (over mpi4py, for ranks started by ``mpirun``). The default is "mpi"
            with ``comm``, else "gloo" if torch is installed, else "mpi".
        start_timeout: Seconds to wait for the other ranks. Default: ``CLOUDTRAIN_START_TIMEOUT``, else 300.
        timeout: Seconds allowed for one collective. Default: ``CLOUDTRAIN_COLLECTIVE_TIMEOUT``, else 1800.

    Raises:
        InvalidArgument: The environment or the arguments are contradictory, or the backend is not installed.
        CollectiveError: The rendezvous failed.
    """
    global _backend
    if _backend is not None:
        return
    sets = process_sets_of(process_sets)
    opened = _open(_backend_name(backend, comm), comm, start_timeout, timeout)
    global_process_set.attach(GLOBAL, list(range(opened.world.size)), opened.world.rank)
    _backend = opened
    try:
        for process_set in sets:
            add_process_set(process_set)
    except BaseException:
        shutdown()
        raise


def _backend_name(name: str | None, comm: Any) -> str:
    if name is None:
        found = [known for known, package in BACKENDS.items() if find_spec(package) is not None]
        if not found:
            raise InvalidArgument(
                "neither torch nor mpi4py is installed", hint="pip install torch, or pip install mpi4py."
            )
        return "mpi" if comm is not None else found[0]
    if name not in BACKENDS:
        raise InvalidArgument(f"backend={name!r} is not known", hint=f"Known: {', '.join(BACKENDS)}.")
    if comm is not None and name != "mpi":
        raise InvalidArgument("comm is for backend 'mpi'", hint="Use process_sets for some of the ranks.")
    if find_spec(BACKENDS[name]) is None:
        raise InvalidArgument(f"backend {name!r} needs {BACKENDS[name]}, which is not installed")
    return name


def _open(name: str, comm: Any, start_timeout: float | None, timeout: float | None) -> Backend:
    """Import the backend only when it is chosen: the other one may be absent, or slow to import."""
    if name == "mpi":
        from cloudtrain.distributed.numpy._mpi.backend import MpiBackend

        return MpiBackend(comm, start_timeout, timeout)
    from cloudtrain.distributed.numpy._gloo import GlooBackend

    return GlooBackend(start_timeout, timeout)


def shutdown() -> None:
    """Disconnect from the other ranks. ``init`` may be called again."""
    global _backend
    backend, _backend = _backend, None
    if backend is not None:
        global_process_set.detach()
        backend.close()


atexit.register(shutdown)


def is_initialized() -> bool:
    """Whether the process is between `init` and `shutdown`."""
    return _backend is not None


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a set with all ranks, and wait for them. All ranks call this with the same set.

    Raises:
        InvalidArgument: A rank does not exist, or the set is already registered.
        CollectiveError: The ranks disagree.
    """
    backend = current()
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    backend.add_process_set(process_set)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Unregister a set. All ranks call this. Return False for the global set and for unregistered sets."""
    return current().remove_process_set(process_set)


def process_set_by_id(set_id: int) -> ProcessSet:
    """Raises InvalidArgument if no set has this number."""
    return with_id(set_id, [global_process_set, *current().sets])


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until every rank of the set has called this."""
    collectives_of(process_set).barrier(process_set)


def join() -> int:
    """Announce that this rank has no more data, and wait until all ranks have done so.

    Meanwhile this rank contributes zeros to the allreduces of the others. Other global operations fail.

    Returns:
        The rank that joined last.
    """
    return current().join()
