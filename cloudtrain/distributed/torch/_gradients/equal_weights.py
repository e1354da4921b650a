"""Warns of parameters whose values differ between ranks, before their first common gradient is used."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cloudtrain.distributed._gradients import report_different_weights
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Max
from cloudtrain.distributed.torch.collectives import allreduce_

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def warn_of_different_weights(
    parameters: Sequence[Tensor], names: Sequence[str], process_set: ProcessSet
) -> None:
    """Compare the bits of ``parameters`` between the ranks of ``process_set``, which all call this.

    Equal gradients keep weights apart that were different before, and no later step shows it. It is a warning and not
    an error: Horovod trains such models too. Weights on GPUs are not compared: the step would wait for the GPU.
    """
    if not parameters or any(parameter.device.type != "cpu" for parameter in parameters):
        return
    sums = torch.stack([_sum_of_bits(parameter) for parameter in parameters])
    ends = torch.stack([sums, ~sums])  # the largest, and the complement of the smallest
    allreduce_(ends, name="DistributedOptimizer.weights", op=Max, process_set=process_set)
    most, least = ends[0].tolist(), (~ends[1]).tolist()
    different = [name for name, high, low in zip(names, most, least) if high != low]
    report_different_weights(
        different,
        process_set.rank() == 0,
        "the ranks start with different weights",
        "Call broadcast_parameters(model.state_dict(), root_rank=0) before the first step, after weights are restored",
    )


def _sum_of_bits(parameter: Tensor) -> Tensor:
    data = parameter.detach()
    if data.is_complex():
        data = torch.view_as_real(data)
    return data.view(_INTEGERS[data.element_size()]).sum(dtype=torch.int64)
