"""Reductions between GPUs, by TensorFlow's own collectives over NCCL. Data stays in GPU memory.

Each operation is first negotiated as on the CPU, by name and with a timeout; then the GPUs start.

Not yet run on GPUs. The tests run it on CPUs, where TensorFlow's collectives use the network.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import cloudtrain.distributed.numpy as hvd
from cloudtrain.distributed.errors import CollectiveError, InvalidArgument
from cloudtrain.distributed.numpy._backend import Array
from cloudtrain.distributed.reduce_op import Average, Max, Min, Product, ScaledOp, Sum
from cloudtrain.distributed.tensorflow._bridge import check_not_compiled, waiting_function

GROUP_KEY = 1 << 20
"""Identifies the group of all ranks. The strategy below numbers its own groups from 1."""
_MERGES = {Average: "Add", Sum: "Add", Min: "Min", Max: "Max", Product: "Mul"}


class GpuCollectives:
    """The connected TensorFlow runtimes of the ranks. All ranks construct it before TensorFlow runs an operation.

    Args:
        hint: TensorFlow's implementation of collectives: "nccl", or "ring" for CPUs.

    Raises:
        InvalidArgument: TensorFlow has already run an operation.
    """

    def __init__(self, hint: str = "nccl") -> None:
        self._hint = hint
        addresses = hvd.allgather_object(_free_address(), name="addresses of TensorFlow's collectives")
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": addresses}),
            task_type="worker",
            task_id=hvd.rank(),
            rpc_layer="grpc",
        )
        try:
            _choose_gpu()
            # Constructing it connects the runtimes. It has no other use here.
            self._strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
        except RuntimeError as error:
            raise InvalidArgument(
                f"TensorFlow's collectives cannot be configured any more: {error}",
                hint="Call hvd.init() before creating a tensor or a model.",
            ) from error

    def reduce(self, tensors: Sequence[Any], how: ScaledOp, name: str | None) -> list[Any]:
        """Reduce tensors across ranks, with one operation per type.

        Raises:
            InvalidArgument: The operation is Adasum.
            CollectiveError: As on the CPU. Names the ranks that disagree.
        """
        op, prescale, postscale = how
        if op not in _MERGES:
            raise InvalidArgument(f"op={op.name} is not available between GPUs")
        postscale = postscale / hvd.size() if op == Average else postscale
        results: dict[int, Any] = {}
        for dtype in dict.fromkeys(one.dtype for one in tensors):
            numbers = [n for n, one in enumerate(tensors) if one.dtype == dtype]
            own = [tensors[n] for n in numbers]
            total = tf.raw_ops.CollectiveReduceV2(
                input=_scaled(tf.concat([tf.reshape(one, [-1]) for one in own], 0), prescale),
                group_size=hvd.size(),
                group_key=GROUP_KEY,
                instance_key=_negotiated(f"{op.name} {[(dtype.name, str(one.shape)) for one in own]}", name),
                ordering_token=[],
                merge_op=_MERGES[op],
                final_op="Id",
                communication_hint=self._hint,
            )
            parts = tf.split(_scaled(total, postscale), [tf.size(one) for one in own])
            results.update((n, tf.reshape(part, tf.shape(tensors[n]))) for n, part in zip(numbers, parts))
        return [results[n] for n in range(len(tensors))]

    def broadcast(self, tensor: Any, root_rank: int, name: str | None) -> Any:
        """Return the root's ``tensor``, computed as a sum with zeros from all other ranks."""
        own = tensor if hvd.rank() == root_rank else tf.zeros_like(tensor)
        return self.reduce([own], ScaledOp(Sum), name)[0]


def _choose_gpu() -> None:
    """Select this rank's GPU, unless the launcher already did."""
    visible = tf.config.get_visible_devices("GPU")
    for gpu in visible:
        tf.config.experimental.set_memory_growth(gpu, True)
    if hvd.local_rank() < len(visible):
        tf.config.set_visible_devices(visible[hvd.local_rank()], "GPU")


def _negotiated(what: str, name: str | None) -> Any:
    """Wait until all ranks request the operation. Return its key as a tensor, so that the operation depends on it."""

    check_not_compiled()

    def agree() -> Array:
        everyone = hvd.allgather_object(what, name=name)
        for rank, other in enumerate(everyone):
            if other != everyone[0]:
                raise CollectiveError(
                    f"allreduce {name or ''}: rank 0 has {everyone[0]}, rank {rank} has {other}",
                    hint="Call the same operations on all ranks.",
                )
        return np.array(zlib.crc32(f"{what} {name}".encode()) >> 1, np.int32)

    with tf.device("/cpu:0"):
        if tf.executing_eagerly():
            return tf.constant(agree())
        [key] = waiting_function(lambda: [agree()], [], [tf.int32])
        key.set_shape(())
        return key


def _scaled(tensor: Any, factor: float) -> Any:
    if factor == 1.0:
        return tensor
    if tensor.dtype.is_floating or tensor.dtype.is_complex:
        return tensor * tf.cast(factor, tensor.dtype)
    return tf.cast(tf.cast(tensor, tf.float64) * factor, tensor.dtype)


def _free_address() -> str:
    """Return an address where the other runtimes can reach this one."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    host = "127.0.0.1" if hvd.local_size() == hvd.size() else socket.gethostname()
    return f"{host}:{port}"
