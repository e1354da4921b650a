"""Horovod's questions about how it was built, answered for what runs here."""

from __future__ import annotations

from importlib.util import find_spec

import tensorflow as tf

from cloudtrain.distributed.numpy import _session


def mpi_threads_supported() -> bool:
    """Whether data may travel by MPI, which needs its threads."""
    return mpi_enabled()


def mpi_enabled() -> bool:
    """Whether data travels by MPI."""
    return _session.is_initialized() and type(_session.current()).__name__ == "Mpi"


def mpi_built() -> bool:
    """Whether ``init(backend="mpi")`` finds mpi4py."""
    return find_spec("mpi4py") is not None


def gloo_enabled() -> bool:
    """Whether data travels by Gloo."""
    return _session.is_initialized() and type(_session.current()).__name__ == "Gloo"


def gloo_built() -> bool:
    """Whether ``init(backend="gloo")`` finds torch."""
    return find_spec("torch") is not None


def nccl_built() -> bool:
    """Whether TensorFlow was built with NCCL, as all of its builds for CUDA on Linux are."""
    return cuda_built()


def ddl_built() -> bool:
    return False


def ccl_built() -> bool:
    return False


def cuda_built() -> bool:
    return bool(tf.test.is_built_with_cuda())


def rocm_built() -> bool:
    return bool(tf.test.is_built_with_rocm())
