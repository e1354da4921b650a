"""Horovod's questions about how it was built, answered for what runs here."""

from __future__ import annotations

import tensorflow as tf

from cloudtrain.distributed.numpy import _session
from cloudtrain.distributed.numpy.queries import ccl_built, ddl_built, gloo_built, mpi_built

__all__ = [
    "ccl_built",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rocm_built",
]


def mpi_threads_supported() -> bool:
    """Whether data may travel by MPI, which needs its threads."""
    return mpi_enabled()


def mpi_enabled() -> bool:
    """Whether data travels by MPI."""
    return _session.is_initialized() and type(_session.current()).__name__ == "Mpi"


def gloo_enabled() -> bool:
    """Whether data travels by Gloo."""
    return _session.is_initialized() and type(_session.current()).__name__ == "Gloo"


def nccl_built() -> bool:
    """Whether TensorFlow was built with NCCL, as all of its builds for CUDA on Linux are."""
    return cuda_built()


def cuda_built() -> bool:
    return bool(tf.test.is_built_with_cuda())


def rocm_built() -> bool:
    return bool(tf.test.is_built_with_rocm())
