"""Horovod's accessors for the world and its queries about the build, written once for all frameworks."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Callable

from cloudtrain.distributed.world import World


class WorldAccessors:
    """The position of this process in the job. Each framework exports the bound methods.

    Every method raises NotInitialized before ``init``.

    Args:
        current: Returns the world that ``init`` joined. A module-level function, so that the methods can be pickled.
    """

    def __init__(self, current: Callable[[], World]) -> None:
        self._current = current

    def rank(self) -> int:
        """The global rank of this process, counted from 0."""
        return self._current().rank

    def size(self) -> int:
        """The number of ranks in the job."""
        return self._current().size

    def local_rank(self) -> int:
        """The rank of this process on its host, counted from 0."""
        return self._current().local_rank

    def local_size(self) -> int:
        """The number of ranks on this host."""
        return self._current().local_size

    def cross_rank(self) -> int:
        """The index of this host, counted from 0."""
        return self._current().cross_rank

    def cross_size(self) -> int:
        """The number of hosts."""
        return self._current().cross_size

    def is_homogeneous(self) -> bool:
        """Whether every host has the same number of ranks."""
        world = self._current()
        return world.local_size * world.cross_size == world.size


class BuildQueries:
    """Horovod's queries about its build, answered for the installed packages.

    The base class answers for collectives in host memory. A framework overrides what differs.
    """

    def mpi_built(self) -> bool:
        """Whether mpi4py is installed, which ``init(backend="mpi")`` needs."""
        return find_spec("mpi4py") is not None

    def mpi_enabled(self) -> bool:
        return self.mpi_built()

    def mpi_threads_supported(self) -> bool:
        """Same as `mpi_enabled`: ``init`` rejects an MPI library without thread support."""
        return self.mpi_enabled()

    def gloo_built(self) -> bool:
        """Whether PyTorch is installed, which ``init(backend="gloo")`` needs."""
        return find_spec("torch") is not None

    def gloo_enabled(self) -> bool:
        return self.gloo_built()

    def nccl_built(self) -> int:
        """NCCL's version as a number; 0 without NCCL."""
        return 0

    def ddl_built(self) -> bool:
        return False

    def ccl_built(self) -> bool:
        return False

    def cuda_built(self) -> bool:
        return False

    def rocm_built(self) -> bool:
        return False
