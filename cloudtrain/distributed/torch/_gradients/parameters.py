"""An optimizer's parameters: their names and groups, and whether they and their values are the same on all ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from cloudtrain.distributed._gradients import report_different_weights
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Max
from cloudtrain.distributed.torch.collectives import allreduce_
from cloudtrain.distributed.torch.objects import allgather_object


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def names_of(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, Tensor]] | None
) -> dict[Tensor, str]:
    """Raises InvalidArgument if names are not unique or do not cover the optimizer's parameters."""
    if named_parameters is None:
        return {p: f"allreduce.noname.{number}" for number, p in enumerate(parameters_of(optimizer))}
    pairs = list(named_parameters)
    if any(not isinstance(pair, tuple) for pair in pairs):
        raise InvalidArgument(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
            "model.named_parameters()."
        )
    listed = [name for name, _ in pairs]
    if len(set(listed)) < len(listed):
        twice = sorted({name for name in listed if listed.count(name) > 1})
        raise InvalidArgument(
            f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(twice)}"
        )
    names = {parameter: name for name, parameter in pairs}
    unnamed = [tuple(p.shape) for p in parameters_of(optimizer) if p not in names]
    if unnamed:
        raise InvalidArgument(
            "named_parameters was specified, but one or more model parameters were not named. "
            f"Shapes: {', '.join(map(str, unnamed))}"
        )
    return names


def group_numbers(
    groups: int | Sequence[Sequence[Tensor]] | None, parameters: Iterable[Tensor]
) -> dict[Tensor, int]:
    """The group number of each parameter that is in a group.

    Args:
        groups: lists of parameters; or the number of groups into which the trained ``parameters`` are divided evenly.

    Raises:
        InvalidArgument: a negative number, something other than parameters, or a parameter twice.
    """
    if groups is None:
        return {}
    if isinstance(groups, int):
        if groups < 0:
            raise InvalidArgument(
                "groups should be a non-negative integer or a list of list of torch.Tensor."
            )
        trained = [p for p in parameters if p.requires_grad]
        return {p: number * groups // len(trained) for number, p in enumerate(trained)} if groups else {}
    numbers: dict[Tensor, int] = {}
    for number, members in enumerate(groups):
        for parameter in members:
            if not isinstance(parameter, Tensor):
                raise InvalidArgument("groups must consist of torch.Tensor.")
            if parameter in numbers:
                raise InvalidArgument("A parameter can only appear once in groups.")
            numbers[parameter] = number
    return numbers


def describe(name: str, parameter: Tensor, group: int | None = None) -> str:
    text = f"{name} {tuple(parameter.shape)} {parameter.dtype} on {parameter.device.type}"
    return text.replace("torch.", "") + ("" if group is None else f" in group {group}")


def check_equal_on_all_ranks(own: Sequence[str], process_set: ProcessSet, settings: str = "") -> None:
    """Check that the parameters are the same on all ranks of ``process_set``, which all call this.

    Args:
        own: the `describe` of each parameter of this rank.
        settings: text that must also be the same on all ranks.

    Raises:
        InvalidArgument: parameters differ in number, order, name, shape or type, or settings differ. Raised on all
            ranks; names the first difference.
    """
    what = "DistributedOptimizer.parameters"
    digest = hashlib.sha256("\n".join([*own, settings]).encode()).hexdigest()
    if len(set(allgather_object(digest, what, process_set))) == 1:
        return
    everybody = allgather_object((own, settings), what, process_set)
    columns: list[tuple[Any, ...]] = list(zip_longest(*(parameters for parameters, _ in everybody)))
    for number, column in enumerate(columns):
        if len(set(column)) > 1:
            raise InvalidArgument(
                f"the ranks' optimizers differ from parameter {number} on: {_by_rank(column, process_set)}",
                hint="Build the same model on all ranks, and pass its parameters in the same order.",
            )
    settings_of_all = [others for _, others in everybody]
    raise InvalidArgument(
        f"the ranks' optimizers have different settings: {_by_rank(settings_of_all, process_set)}",
        hint="Set these variables to the same values on all ranks.",
    )


def _by_rank(column: Sequence[str | None], process_set: ProcessSet) -> str:
    ranks_by_text: dict[str, list[int]] = {}
    for rank, text in zip(process_set.members(), column):
        ranks_by_text.setdefault(text or "missing", []).append(rank)
    return "; ".join(f"on ranks {ranks} it is {text}" for text, ranks in ranks_by_text.items())


_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def warn_of_different_weights(
    parameters: Sequence[Tensor], names: Sequence[str], process_set: ProcessSet
) -> None:
    """Compare the bits of ``parameters`` between the ranks of ``process_set``, which all call this.

    Equal gradients do not remove a difference between weights, and no later step reveals it. This only warns, because
    Horovod trains models with different weights, too. Weights on GPUs are not compared: the step would wait for the
    GPU.
    """
    if not parameters or any(parameter.device.type != "cpu" for parameter in parameters):
        return
    sums = torch.stack([_sum_of_bits(parameter) for parameter in parameters])
    ends = torch.stack([sums, ~sums])  # their maxima are the largest sum, and the complement of the smallest
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
