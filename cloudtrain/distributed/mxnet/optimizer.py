"""Gluon's trainer and MXNet's optimizers, with gradients averaged across ranks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mxnet as mx
import numpy as np

import cloudtrain.distributed.numpy as core
from cloudtrain.distributed._gradients import Compressor, casting
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.mxnet.collectives import all_to_numpy, write
from cloudtrain.distributed.numpy import Average, ProcessSet, global_process_set
from cloudtrain.observe.timeline import recorder


class Compression:
    """The built-in compressors. ``compression`` also accepts any other subclass of `Compressor`."""

    none = Compressor
    fp16 = casting(
        __name__,
        "fp16",
        "float16",
        lambda array: np.dtype(array.dtype).kind == "f",
        lambda array, dtype: array.astype(dtype),
    )


class DistributedTrainer(mx.gluon.Trainer):  # type: ignore[misc]
    """A ``Trainer`` whose ``step(batch_size)`` averages gradients across ranks first.

    ``batch_size`` is that of this rank. Use ``allreduce_grads`` and ``update`` to clip the averaged gradients.

    Args:
        params: ``net.collect_params()``, on a single device. Every rank has its own device.
        compression: Applied to gradients while they are sent.
        gradient_predivide_factor: Gradients are divided by it before the sum, and multiplied by it and divided by the
            number of ranks after the sum.
        prefix: Prepended to the names by which ranks are matched, and which errors show.
        num_groups: The number of operations of similar size that send the gradients of a step; 0 means one.
        process_set: The ranks that average. On other ranks, ``step`` is that of ``Trainer``.

    Raises:
        InvalidArgument: Parameters are on several devices, or a number is out of range.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: Any = None,
        compression: type[Compressor] = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        name = f"{prefix or ''}gradient "
        self._reduction = _Reduction(gradient_predivide_factor, num_groups, process_set, compression, name)
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "DistributedTrainer averages gradients itself; the DistributedOptimizer is unwrapped.",
                stacklevel=2,
            )
            optimizer = optimizer._optimizer
        super().__init__(params, optimizer, optimizer_params, kvstore=None)
        if len(self._contexts or ()) > 1:
            raise InvalidArgument(
                f"the parameters are on {len(self._contexts)} devices",
                hint="Start one rank per device, and pass that device to initialize(ctx=...).",
            )

    def _allreduce_grads(self) -> None:
        trained = {n: one for n, one in enumerate(self._params) if one.grad_req != "null"}
        self._reduction.average_([one.list_grad()[0] for one in trained.values()], list(trained))

    def _update(self, ignore_stale_grad: bool = False) -> None:
        super()._update(ignore_stale_grad)
        recorder.step_ended()


class DistributedOptimizer(mx.optimizer.Optimizer):  # type: ignore[misc]
    """Averages gradients across ranks, in place, before every update. For ``mx.mod.Module`` and custom training loops.

    Use it with ``kvstore=None``: a kvstore would sum gradients a second time. All other attributes are forwarded to
    ``optimizer``, for reading and writing. Arguments as for `DistributedTrainer`.

    Raises:
        InvalidArgument: A number is out of range.
    """

    def __init__(
        self,
        optimizer: Any,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        reduction = _Reduction(gradient_predivide_factor, num_groups, process_set, name="gradient ")
        object.__setattr__(self, "_reduction", reduction)
        object.__setattr__(self, "_optimizer", optimizer)
        object.__setattr__(self, "_first", None)

    def __getattr__(self, name: str) -> Any:
        if name == "_optimizer":  # absent while it is unpickled
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._optimizer, name, value)

    def create_state(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state_multi_precision(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._average(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._average(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def _average(self, index: Any, grad: Any) -> None:
        """MXNet passes a single weight, or lists of several."""
        several = isinstance(index, (tuple, list))
        first = index[0] if several else index
        if self._first is None:
            object.__setattr__(self, "_first", first)
        elif first == self._first:  # a step has several updates, and begins with its first weight
            recorder.step_ended()
        self._reduction.average_(list(grad) if several else [grad], index if several else [index])


@dataclass(frozen=True)
class _Reduction:
    """How gradients are averaged.

    Args:
        name: Prefix of the names by which ranks are matched.

    Raises:
        InvalidArgument: A number is out of range.
    """

    predivide: float
    num_groups: int
    process_set: ProcessSet
    compression: type[Compressor] = Compressor
    name: str = ""

    def __post_init__(self) -> None:
        if not self.predivide > 0:
            raise InvalidArgument(f"gradient_predivide_factor has to be above 0, not {self.predivide}")
        if self.num_groups < 0:
            raise InvalidArgument(f"num_groups has to be at least 0, not {self.num_groups}")

    def average_(self, gradients: Sequence[Any], labels: Sequence[Any]) -> None:
        """Average NDArrays in place. Does nothing on ranks outside the process set.

        Args:
            labels: The name of each gradient. The same on all ranks.
        """
        if not gradients or not self.process_set.included() or self.process_set.size() == 1:
            return
        packed = [self.compression.compress(gradient) for gradient in gradients]
        wires = all_to_numpy([wire for wire, _ in packed])
        handles = [
            core.grouped_allreduce_async_(
                wires[part],
                name=f"{self.name}{labels[part.start]}:{labels[part.stop - 1]}",
                op=Average,
                prescale_factor=1 / self.predivide,
                postscale_factor=self.predivide,
                process_set=self.process_set,
            )
            for part in _parts(len(wires), self.num_groups or 1)
        ]
        for handle in handles:
            handle.wait()
        for gradient, (carrier, context), wire in zip(gradients, packed, wires):
            write(carrier, wire)
            unpacked = self.compression.decompress(carrier, context)
            if unpacked is not gradient:
                gradient[:] = unpacked


def _parts(count: int, groups: int) -> Iterator[slice]:
    """Split ``range(count)`` into at most ``groups`` non-empty slices of similar length."""
    bounds = [count * group // groups for group in range(groups + 1)]
    return (slice(start, stop) for start, stop in zip(bounds, bounds[1:]) if start < stop)
