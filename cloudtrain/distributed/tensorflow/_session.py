"""``init`` and ``shutdown``, and Horovod's questions about the world as operations of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf

import cloudtrain.distributed.numpy as hvd
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.tensorflow._crossing import as_written, cross
from cloudtrain.distributed.tensorflow._devices import in_host_memory, through_host_memory
from cloudtrain.distributed.tensorflow._gpu import Gpus

global_process_set = hvd.global_process_set

ERROR_INIT = -1
"""Of `process_set_included_op`: not initialized."""
ERROR_UNKNOWN_SET = -2
"""Of `process_set_included_op`: there is no such set."""


_gpus: Gpus | None = None


def init(
    comm: Any = None,
    process_sets: Iterable[ProcessSet] | str | None = None,
    *,
    backend: str | None = None,
    start_timeout: float | None = None,
    timeout: float | None = None,
) -> None:
    """Join the ranks of the job; a second call does nothing.

    Arguments as of `cloudtrain.distributed.numpy.init`. Where TensorFlow sees GPUs and there are several ranks, GPU
    number ``local_rank`` becomes the only one that it uses, its memory grows as it is needed, and reductions go between
    the GPUs by NCCL, unless ``CLOUDTRAIN_TENSORFLOW_HOST_MEMORY=1`` sends them through host memory.

    Raises:
        InvalidArgument: the environment or an argument contradicts itself, or there are GPUs and TensorFlow has run
            an operation already.
        CollectiveError: the ranks did not meet.
    """
    global _gpus
    hvd.init(comm, process_sets, backend=backend, start_timeout=start_timeout, timeout=timeout)
    if (
        _gpus is None
        and hvd.size() > 1
        and tf.config.get_visible_devices("GPU")
        and not through_host_memory()
    ):
        try:
            _gpus = Gpus()
        except BaseException:
            hvd.shutdown()
            raise


def shutdown() -> None:
    """Leave the other ranks; on CPUs ``init`` may follow."""
    global _gpus
    _gpus = None
    hvd.shutdown()


def gpus_for(tensors: Sequence[Any], process_set: ProcessSet) -> Gpus | None:
    """What reduces ``tensors``; None where that is to be in host memory. Raises InvalidArgument."""
    if _gpus is None or in_host_memory(tensors):
        return None
    if process_set.size() != hvd.size():
        raise InvalidArgument(
            "between GPUs all ranks reduce together, without process sets",
            hint='Give device_dense="/cpu:0" to take the way through host memory.',
        )
    return _gpus


@as_written
def join() -> Any:
    """Tell the other ranks that this one has no more data, and wait until all have done so.

    Until then it counts as giving zeros to their allreduces. Other operations of all ranks fail meanwhile.

    Returns:
        The rank that joined last, as an int32 tensor.
    """
    return cross(lambda _: [np.array(hvd.join(), np.int32)], [], [(tf.int32, ())])[0]


@as_written
def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """The number of ranks in a process set when the graph runs, which may not be when it is made."""
    return _asked(lambda: hvd.process_set_by_id(process_set_id).size(), name)


@as_written
def rank_op(name: str | None = None) -> Any:
    """This process among all, when the graph runs."""
    return _asked(hvd.rank, name)


@as_written
def local_size_op(name: str | None = None) -> Any:
    """The number of ranks on this host, when the graph runs."""
    return _asked(hvd.local_size, name)


@as_written
def local_rank_op(name: str | None = None) -> Any:
    """This process among those of its host, when the graph runs."""
    return _asked(hvd.local_rank, name)


@as_written
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """1 where this process is in the set, else 0, when the graph runs; below 0 where there is no such set."""

    def included() -> int:
        if not hvd.is_initialized():
            return ERROR_INIT
        try:
            process_set: ProcessSet = hvd.process_set_by_id(process_set_id)
        except InvalidArgument:
            return ERROR_UNKNOWN_SET
        return int(process_set.included())

    return _asked(included, name)


def _asked(question: Callable[[], int], name: str | None) -> Any:
    if tf.executing_eagerly():
        return tf.constant(question(), tf.int32)
    answer = tf.numpy_function(lambda: np.int32(question()), [], tf.int32, name=name)
    answer.set_shape(())
    return answer
