"""What the ranks have measured, each on its share of the data, as one set of figures."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Sum
from cloudtrain.distributed.torch._state import global_process_set
from cloudtrain.distributed.torch.collectives import allreduce_


def average_metrics(
    metrics: Mapping[str, float | Tensor],
    weight: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> dict[str, float]:
    """The mean of each metric over the ranks, in one collective: the same on all of them, bit for bit.

    So what follows from it, such as a step of ``ReduceLROnPlateau`` or an early stop, is the same on all ranks too::

        means = hvd.average_metrics({"loss": loss, "accuracy": right / seen}, weight=seen)
        scheduler.step(means["loss"])

    Reading a metric waits for the GPU that computes it, so call it once an epoch rather than at every step.

    Args:
        metrics: numbers, or tensors of one element, by name; the same names on all ranks.
        weight: how much this rank's numbers count: the number of samples that they were taken from. With 0 it does
            not matter what they are.

    Returns:
        The sum of weight * metric over the sum of the weights, in the order of ``metrics``; nan where no rank has
        a weight.

    Raises:
        InvalidArgument: the weight is negative or no number. Also a ValueError.
    """
    if not weight >= 0:
        raise InvalidArgument(f"average_metrics: weight is {weight}", hint="It is a number of samples.")
    names = sorted(metrics)
    values = [weight * torch.as_tensor(metrics[name]).item() if weight else 0.0 for name in names]
    sums = torch.tensor([weight, *values], dtype=torch.float64)
    allreduce_(sums, name=f"metrics {', '.join(names)}", op=Sum, process_set=process_set)
    means = dict(zip(names, (sums[1:] / sums[0]).tolist()))
    return {name: means[name] for name in metrics}
