"""Horovod's questions about how it was built, answered for what is installed here."""

from __future__ import annotations

from importlib.util import find_spec


def mpi_built() -> bool:
    """Whether ``init(backend="mpi")`` finds mpi4py."""
    return find_spec("mpi4py") is not None


def mpi_enabled() -> bool:
    return mpi_built()


def mpi_threads_supported() -> bool:
    """As `mpi_built`: ``init`` refuses an MPI that does not allow threads."""
    return mpi_built()


def gloo_built() -> bool:
    """Whether ``init(backend="gloo")`` finds torch."""
    return find_spec("torch") is not None


def gloo_enabled() -> bool:
    return gloo_built()


def nccl_built() -> int:
    """0, as the four below say False: arrays are in the memory of the host."""
    return 0


def ddl_built() -> bool:
    return False


def ccl_built() -> bool:
    return False


def cuda_built() -> bool:
    return False


def rocm_built() -> bool:
    return False
