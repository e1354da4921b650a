"""``init``, ``shutdown`` and ``join``, build queries, and the world accessors as graph operations."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf

import cloudtrain.distributed.numpy as hvd
from cloudtrain.distributed._api import BuildQueries
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.numpy import _context as numpy_context
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.tensorflow._bridge import (
    call_numpy,
    choose_without_xla,
    host_memory_allowed,
    in_host_memory,
    no_autograph,
)
from cloudtrain.distributed.tensorflow._gpu import GpuCollectives

__all__ = [
    "ccl_built",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "join",
    "local_rank_op",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "process_set_included_op",
    "rank_op",
    "rocm_built",
    "shutdown",
    "size_op",
]

global_process_set = hvd.global_process_set

ERROR_INIT = -1
"""Result of `process_set_included_op` before ``init``."""
ERROR_UNKNOWN_SET = -2
"""Result of `process_set_included_op` for an unknown set."""


_gpus: GpuCollectives | None = None


def init(
    comm: Any = None,
    process_sets: Iterable[ProcessSet] | str | None = None,
    *,
    backend: str | None = None,
    start_timeout: float | None = None,
    timeout: float | None = None,
) -> None:
    """Connect the ranks of the job. A second call does nothing.

    Takes the arguments of `cloudtrain.distributed.numpy.init`. If TensorFlow sees GPUs and the job has several ranks,
    TensorFlow is restricted to GPU number ``local_rank`` with memory growth, and reductions run between the GPUs over
    NCCL. ``CLOUDTRAIN_TENSORFLOW_HOST_MEMORY=1`` copies them through host memory instead. With several ranks, models of
    Keras 3 are compiled without XLA unless ``compile(jit_compile=True)`` requests it.

    Raises:
        InvalidArgument: The environment or the arguments are contradictory, or TensorFlow has already run an
            operation on a machine with GPUs.
        CollectiveError: The rendezvous failed.
    """
    global _gpus
    hvd.init(comm, process_sets, backend=backend, start_timeout=start_timeout, timeout=timeout)
    keras = sys.modules.get("keras")
    if hasattr(keras, "Model"):
        choose_without_xla(keras)
    if (
        _gpus is None
        and hvd.size() > 1
        and tf.config.get_visible_devices("GPU")
        and not host_memory_allowed()
    ):
        try:
            _gpus = GpuCollectives()
        except BaseException:
            hvd.shutdown()
            raise


def shutdown() -> None:
    """Disconnect from the other ranks. On CPUs, ``init`` may be called again."""
    global _gpus
    _gpus = None
    hvd.shutdown()


def gpus_for(tensors: Sequence[Any], process_set: ProcessSet) -> GpuCollectives | None:
    """Return the object that reduces ``tensors`` on GPUs; None to reduce in host memory. Raises InvalidArgument."""
    if _gpus is None or in_host_memory(tensors):
        return None
    if process_set.size() != hvd.size():
        raise InvalidArgument(
            "process sets are not supported between GPUs",
            hint='Pass device_dense="/cpu:0" to reduce in host memory.',
        )
    return _gpus


@no_autograph
def join() -> Any:
    """Announce that this rank has no more data, and wait until all ranks have done so.

    Meanwhile this rank contributes zeros to the allreduces of the others. Other global operations fail.

    Returns:
        The rank that joined last, as an int32 tensor.
    """
    return call_numpy(lambda _: [np.array(hvd.join(), np.int32)], [], [(tf.int32, ())])[0]


@no_autograph
def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """The number of ranks in a process set, evaluated when the graph runs."""
    return _evaluated(lambda: hvd.process_set_by_id(process_set_id).size(), name)


@no_autograph
def rank_op(name: str | None = None) -> Any:
    """The global rank, evaluated when the graph runs."""
    return _evaluated(hvd.rank, name)


@no_autograph
def local_size_op(name: str | None = None) -> Any:
    """The number of ranks on this host, evaluated when the graph runs."""
    return _evaluated(hvd.local_size, name)


@no_autograph
def local_rank_op(name: str | None = None) -> Any:
    """The rank on this host, evaluated when the graph runs."""
    return _evaluated(hvd.local_rank, name)


@no_autograph
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """1 if this process is in the set, 0 if not, negative if the set is unknown; evaluated when the graph runs."""

    def included() -> int:
        if not hvd.is_initialized():
            return ERROR_INIT
        try:
            process_set: ProcessSet = hvd.process_set_by_id(process_set_id)
        except InvalidArgument:
            return ERROR_UNKNOWN_SET
        return int(process_set.included())

    return _evaluated(included, name)


def _evaluated(function: Callable[[], int], name: str | None) -> Any:
    if tf.executing_eagerly():
        return tf.constant(function(), tf.int32)
    value = tf.numpy_function(lambda: np.int32(function()), [], tf.int32, name=name)
    value.set_shape(())
    return value


class _TensorFlowBuild(BuildQueries):
    def mpi_enabled(self) -> bool:
        """Whether data is sent over MPI."""
        return _backend_name() == "mpi"

    def gloo_enabled(self) -> bool:
        """Whether data is sent over Gloo."""
        return _backend_name() == "gloo"

    def nccl_built(self) -> int:
        """Whether TensorFlow was built with NCCL, as all its CUDA builds for Linux are."""
        return self.cuda_built()

    def cuda_built(self) -> bool:
        return bool(tf.test.is_built_with_cuda())

    def rocm_built(self) -> bool:
        return bool(tf.test.is_built_with_rocm())


def _backend_name() -> str | None:
    return numpy_context.current().name if hvd.is_initialized() else None


_build = _TensorFlowBuild()
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
