"""Reductions between GPUs by TensorFlow's own collectives over NCCL: numbers stay in the memory of the GPUs.

What comes next is agreed on as on the CPU, by name and with limits of time; only then do the GPUs start.

Unrun on GPUs: the tests run it on CPUs, where TensorFlow's collectives go over the network.
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
from cloudtrain.distributed.numpy._arrays import Array
from cloudtrain.distributed.reduce_op import Average, Max, Min, Product, ReduceOp, Sum

GROUP_KEY = 1 << 20
"""Names the group of all ranks. The strategy below counts its own groups from 1."""
_MERGES = {Average: "Add", Sum: "Add", Min: "Min", Max: "Max", Product: "Mul"}


class Gpus:
    """The ranks' runtimes of TensorFlow, joined. To be made by all ranks, before TensorFlow runs an operation.

    Args:
        hint: how TensorFlow's collectives go: "nccl", or "ring" for CPUs.

    Raises:
        InvalidArgument: TensorFlow has run an operation already.
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
            # It joins the runtimes; nothing else of it is used.
            self._strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
        except RuntimeError as error:
            raise InvalidArgument(
                f"TensorFlow's collectives cannot be set up any more: {error}",
                hint="Call hvd.init() before TensorFlow makes a tensor or a model.",
            ) from error

    def reduce(
        self, tensors: Sequence[Any], op: ReduceOp, name: str | None, prescale: float, postscale: float
    ) -> list[Any]:
        """The tensors of all ranks, reduced; those of one type travel together.

        Raises:
            InvalidArgument: Adasum.
            CollectiveError: as on the CPU; names the ranks that disagree.
        """
        if op not in _MERGES:
            raise InvalidArgument(f"op={op.name} is not offered between GPUs")
        postscale = postscale / hvd.size() if op == Average else postscale
        results: dict[int, Any] = {}
        for dtype in dict.fromkeys(one.dtype for one in tensors):
            numbers = [n for n, one in enumerate(tensors) if one.dtype == dtype]
            own = [tensors[n] for n in numbers]
            total = tf.raw_ops.CollectiveReduceV2(
                input=_scaled(tf.concat([tf.reshape(one, [-1]) for one in own], 0), prescale),
                group_size=hvd.size(),
                group_key=GROUP_KEY,
                instance_key=_agreed(f"{op.name} {[(dtype.name, str(one.shape)) for one in own]}", name),
                ordering_token=[],
                merge_op=_MERGES[op],
                final_op="Id",
                communication_hint=self._hint,
            )
            parts = tf.split(_scaled(total, postscale), [tf.size(one) for one in own])
            results.update((n, tf.reshape(part, tf.shape(tensors[n]))) for n, part in zip(numbers, parts))
        return [results[n] for n in range(len(tensors))]

    def broadcast(self, tensor: Any, root_rank: int, name: str | None) -> Any:
        """The root's ``tensor``, to which the others add zeros."""
        own = tensor if hvd.rank() == root_rank else tf.zeros_like(tensor)
        return self.reduce([own], Sum, name, 1.0, 1.0)[0]


def _choose_gpu() -> None:
    """Where this host's GPUs are not shared out among its ranks yet, this rank takes its own."""
    visible = tf.config.get_visible_devices("GPU")
    for gpu in visible:
        tf.config.experimental.set_memory_growth(gpu, True)
    if hvd.local_rank() < len(visible):
        tf.config.set_visible_devices(visible[hvd.local_rank()], "GPU")


def _agreed(what: str, name: str | None) -> Any:
    """The key of an operation, once all ranks have come to it; a tensor, on which the operation then depends."""

    def agree() -> Array:
        everyone = hvd.allgather_object(what, name=name)
        for rank, theirs in enumerate(everyone):
            if theirs != everyone[0]:
                raise CollectiveError(
                    f"allreduce {name or ''}: rank 0 has {everyone[0]}, rank {rank} has {theirs}",
                    hint="Call the same operations on all ranks.",
                )
        return np.array(zlib.crc32(f"{what} {name}".encode()) >> 1, np.int32)

    with tf.device("/cpu:0"):
        if tf.executing_eagerly():
            return tf.constant(agree())
        key = tf.numpy_function(agree, [], tf.int32)
        key.set_shape(())
        return key


def _scaled(tensor: Any, factor: float) -> Any:
    if factor == 1.0:
        return tensor
    if tensor.dtype.is_floating or tensor.dtype.is_complex:
        return tensor * tf.cast(factor, tensor.dtype)
    return tf.cast(tf.cast(tensor, tf.float64) * factor, tensor.dtype)


def _free_address() -> str:
    """Where the other ranks' runtimes can reach that of this one."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    host = "127.0.0.1" if hvd.local_size() == hvd.size() else socket.gethostname()
    return f"{host}:{port}"
