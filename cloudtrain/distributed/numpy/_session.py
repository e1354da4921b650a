"""From ``init`` to ``shutdown``: the backend, and where this rank stands."""

from __future__ import annotations

import atexit
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import Any

from cloudtrain.distributed.errors import InvalidArgument, NotInitialized
from cloudtrain.distributed.negotiation.messages import GLOBAL
from cloudtrain.distributed.numpy._backend import Backend, Collectives
from cloudtrain.distributed.numpy._solo import Solo
from cloudtrain.distributed.process_set import ProcessSet, process_sets_of, with_id

BACKENDS = {"gloo": "torch", "mpi": "mpi4py"}
"""By name, and the package that each needs; the first that can be found is the default."""

global_process_set = ProcessSet(None)
"""All ranks."""
_backend: Backend | None = None


def current() -> Backend:
    """Raises NotInitialized before ``init`` and after ``shutdown``."""
    if _backend is None:
        raise NotInitialized
    return _backend


def among(process_set: ProcessSet) -> Collectives:
    """What carries arrays between its ranks. Raises NotInitialized, InvalidArgument."""
    backend = current()
    if not isinstance(process_set, ProcessSet):
        raise InvalidArgument(f"process_set={process_set!r} is not a ProcessSet")
    process_set.rank()  # raises where this process is not in it
    return backend if process_set.size() > 1 else Solo()


def init(
    comm: Any = None,
    process_sets: Iterable[ProcessSet] | str | None = None,
    *,
    backend: str | None = None,
    start_timeout: float | None = None,
    timeout: float | None = None,
) -> None:
    """Join the ranks of the job; a second call does nothing.

    Args:
        comm: a communicator of mpi4py, whose ranks are all ranks then; it is not used itself, but copied.
        process_sets: made known to all ranks at once; the same on all ranks.
        backend: "gloo" (over `cloudtrain.distributed.torch`, whose ranks they are where it has been
            initialized before) or "mpi" (over mpi4py, for what ``mpirun`` has started). None takes "mpi"
            where ``comm`` is given, else "gloo" where torch is installed, else "mpi".
        start_timeout: seconds to wait for the other ranks; else ``CLOUDTRAIN_START_TIMEOUT``, else 300.
        timeout: seconds that one collective may take; else ``CLOUDTRAIN_COLLECTIVE_TIMEOUT``, else 1800.

    Raises:
        InvalidArgument: the environment or an argument contradicts itself, or the backend is not installed.
        CollectiveError: the ranks did not meet.
    """
    global _backend
    if _backend is not None:
        return
    sets = process_sets_of(process_sets)
    opened = _open(_chosen(backend, comm), comm, start_timeout, timeout)
    global_process_set.attach(GLOBAL, list(range(opened.world.size)), opened.world.rank)
    _backend = opened
    try:
        for process_set in sets:
            add_process_set(process_set)
    except BaseException:
        shutdown()
        raise


def _chosen(name: str | None, comm: Any) -> str:
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
    """A script needs only what its backend needs, and no import is to take the time of the other's."""
    if name == "mpi":
        from cloudtrain.distributed.numpy._mpi.backend import Mpi

        return Mpi(comm, start_timeout, timeout)
    from cloudtrain.distributed.numpy._gloo import Gloo

    return Gloo(start_timeout, timeout)


def shutdown() -> None:
    """Leave the other ranks; ``init`` may follow."""
    global _backend
    backend, _backend = _backend, None
    if backend is not None:
        global_process_set.detach()
        backend.close()


atexit.register(shutdown)


def is_initialized() -> bool:
    """Whether `init` was called and `shutdown` was not."""
    return _backend is not None


def rank() -> int:
    """This process among all, from 0. Raises NotInitialized before `init`, as do the six below."""
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


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Make a set known to all ranks, which all call this with the same ranks; waits for them.

    Raises:
        InvalidArgument: ranks that do not exist, or a set that is known already.
        CollectiveError: the ranks disagree.
    """
    backend = current()
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    backend.add_process_set(process_set)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Forget a set on all ranks, which all call this; False for the global set or one that is not known."""
    return current().remove_process_set(process_set)


def process_set_by_id(set_id: int) -> ProcessSet:
    """Raises InvalidArgument where there is none."""
    return with_id(set_id, [global_process_set, *current().process_sets()])
