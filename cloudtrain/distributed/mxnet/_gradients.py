"""Gradients of a step, averaged over the ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import cloudtrain.distributed.numpy as core
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.mxnet._arrays import all_to_numpy, write
from cloudtrain.distributed.mxnet.compression import Compressor
from cloudtrain.distributed.numpy import Average, ProcessSet


@dataclass(frozen=True)
class Reduction:
    """How gradients are averaged.

    Args:
        predivide: gradients are divided by it before the sum, and multiplied by it and divided by the number
            of ranks after the sum.
        num_groups: into how many operations of about as many gradients each a step's are divided; 0 is one.
        name: what the ranks are matched by begins with it.

    Raises:
        InvalidArgument: a number below what has a meaning.
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
        """Average NDArrays in place; nothing on ranks that are not in the process set.

        Args:
            labels: what each is called; the same on all ranks.
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
            for part in parts(len(wires), self.num_groups or 1)
        ]
        for handle in handles:
            handle.wait()
        for gradient, (carrier, context), wire in zip(gradients, packed, wires):
            write(carrier, wire)
            unpacked = self.compression.decompress(carrier, context)
            if unpacked is not gradient:
                gradient[:] = unpacked


def parts(count: int, groups: int) -> Iterator[slice]:
    """``count`` things in at most ``groups`` runs of about the same length, none of them empty."""
    bounds = [count * group // groups for group in range(groups + 1)]
    return (slice(start, stop) for start, stop in zip(bounds, bounds[1:]) if start < stop)
