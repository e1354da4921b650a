"""LARS and LAMB for PyTorch, as defined in their papers.

    from cloudtrain.optimizers.torch import LARS

Parameters of at most one dimension, such as biases and those of normalization layers, are excluded from weight decay
and adaptation, as in the experiments of both papers. A step never synchronizes with the GPU, and updates many
parameters with one kernel, like the ``foreach`` form of torch's optimizers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Callable

import torch
from torch import Tensor

from cloudtrain.distributed.errors import InvalidArgument

__all__ = ["LAMB", "LARS"]

BATCH_BYTES = 64 << 20
"""Parameters of up to this total size share kernels. Larger batches would take more temporary memory."""


class LARS(torch.optim.Optimizer):
    """Layer-wise adaptive rate scaling (You, Gitman, Ginsburg 2017, https://arxiv.org/abs/1708.03888).

    For each parameter ``w`` with gradient ``g``, Algorithm 1 with the trust coefficient of equation 6::

        local = trust_coefficient * |w| / (|g| + weight_decay * |w|)
        v = momentum * v + lr * local * (g + weight_decay * w)
        w = w - v

    ``local`` is 1 if ``w`` is zero. Unlike in ``torch.optim.SGD``, the momentum includes ``lr``.

    Args:
        params: parameters, or parameter groups with their own arguments, as for any torch optimizer.

    Raises:
        InvalidArgument: an argument is out of range; or, in ``step``, a gradient is sparse. Also a ValueError.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 0.001,
    ) -> None:
        _check(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient)
        _check_below_1(momentum=momentum)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust_coefficient": trust_coefficient,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = _evaluated(closure)
        for parameters, gradients, group in _batches(self):
            decay, rates = group["weight_decay"], None
            directions: Sequence[Tensor] = gradients
            if parameters[0].ndim > 1:
                weights, slopes = _norms(parameters), _norms(gradients)
                wanted = torch._foreach_mul(weights, group["trust_coefficient"])
                rates = _ratios(wanted, torch._foreach_add(slopes, torch._foreach_mul(weights, decay)))
                directions = torch._foreach_add(gradients, parameters, alpha=decay)
            velocities = [self._velocity(parameter) for parameter in parameters]
            torch._foreach_mul_(velocities, group["momentum"])
            torch._foreach_add_(velocities, _scaled(directions, group["lr"], rates))
            torch._foreach_sub_(parameters, velocities)
        return loss

    def _velocity(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        velocity: Tensor = state["momentum_buffer"]
        return velocity


class LAMB(torch.optim.Optimizer):
    """Layer-wise adaptive moments (You et al. 2019, https://arxiv.org/abs/1904.00962), Algorithm 2.

    For each parameter ``w`` with gradient ``g`` at step ``t``::

        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g ** 2
        r = m / (1 - beta1 ** t) / (sqrt(v / (1 - beta2 ** t)) + eps) + weight_decay * w
        w = w - lr * |w| / |r| * r

    The ratio of the norms is 1 if either is zero.

    Args:
        params: parameters, or parameter groups with their own arguments, as for any torch optimizer.

    Raises:
        InvalidArgument: an argument is out of range; or, in ``step``, a gradient is sparse. Also a ValueError.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        _check(lr=lr, beta1=betas[0], beta2=betas[1], eps=eps, weight_decay=weight_decay)
        _check_below_1(beta1=betas[0], beta2=betas[1])
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = _evaluated(closure)
        for parameters, gradients, group in _batches(self):
            states = [self._advanced(parameter) for parameter in parameters]
            beta1, beta2 = group["betas"]
            means = [state["exp_avg"] for state in states]
            squares = [state["exp_avg_sq"] for state in states]
            torch._foreach_lerp_(means, gradients, 1 - beta1)
            torch._foreach_mul_(squares, beta2)
            torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
            deviations = torch._foreach_div(squares, [1 - beta2 ** state["step"] for state in states])
            torch._foreach_sqrt_(deviations)
            torch._foreach_add_(deviations, group["eps"])
            directions = torch._foreach_div(means, [1 - beta1 ** state["step"] for state in states])
            torch._foreach_div_(directions, deviations)
            del deviations
            rates = None
            if parameters[0].ndim > 1:
                torch._foreach_add_(directions, parameters, alpha=group["weight_decay"])
                rates = _ratios(_norms(parameters), _norms(directions))
            torch._foreach_sub_(parameters, _scaled(directions, group["lr"], rates))
        return loss

    def _advanced(self, parameter: Tensor) -> dict[str, Any]:
        """The state of ``parameter``, with its step count increased by one."""
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        return state


def _norms(tensors: list[Tensor] | tuple[Tensor, ...]) -> list[Tensor]:
    """The Euclidean norms, in float32 for half precision, whose squares would overflow."""
    wide = torch.float32 if tensors[0].itemsize < 4 else None
    return list(torch._foreach_norm(tensors, 2, wide))


def _ratios(above: Sequence[Tensor], below: Sequence[Tensor]) -> list[Tensor]:
    """The ratios, each 1 if either number is zero. Computed on the device, to avoid a synchronization with the host."""
    if len(above) == 1:
        return [_ratio(above[0], below[0])]
    return list(_ratio(torch.stack(tuple(above)), torch.stack(tuple(below))).unbind())


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    return torch.where((above > 0) & (below > 0), above / below, torch.ones_like(above))


def _scaled(directions: Sequence[Tensor], rate: Any, ratios: list[Tensor] | None) -> list[Tensor]:
    """``directions`` times the learning rate, and times each one's own ratio, in the types of ``directions``."""
    if ratios is not None:
        return [direction * ratio for direction, ratio in zip(directions, torch._foreach_mul(ratios, rate))]
    if isinstance(rate, Tensor):
        return [(direction * rate).to(direction.dtype) for direction in directions]
    return list(torch._foreach_mul(list(directions), rate))


def _evaluated(closure: Callable[[], Any] | None) -> Any:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def _batches(optimizer: torch.optim.Optimizer) -> Iterator[tuple[list[Tensor], list[Tensor], dict[str, Any]]]:
    """Yield batches of parameters that have gradients, with the gradients and the parameter group.

    The parameters of a batch are on one device and of one type; all have more than one dimension, or all at most one.
    """
    for group in optimizer.param_groups:
        alike: dict[Any, list[Tensor]] = {}
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            if parameter.grad.is_sparse:
                raise InvalidArgument(
                    f"{type(optimizer).__name__} does not support sparse gradients",
                    hint="Create the embedding with sparse=False.",
                )
            kind = (parameter.device, parameter.dtype, parameter.grad.dtype, parameter.ndim > 1)
            # Not every operation takes a list of subclasses, such as sharded tensors.
            plain = type(parameter) in (Tensor, torch.nn.Parameter)
            alike.setdefault(kind if plain else parameter, []).append(parameter)
        for parameters in alike.values():
            for batch in _portions(parameters):
                yield batch, [parameter.grad for parameter in batch if parameter.grad is not None], group


def _portions(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    """Yield lists of consecutive tensors: each list has at most `BATCH_BYTES`, or a single larger tensor."""
    begin, size = 0, 0
    for number, tensor in enumerate(tensors):
        size += tensor.nbytes
        if size > BATCH_BYTES and number > begin:
            yield tensors[begin:number]
            begin, size = number, tensor.nbytes
    if tensors:
        yield tensors[begin:]


def _check(**arguments: float) -> None:
    for name, value in arguments.items():
        if not value >= 0:
            raise InvalidArgument(f"{name} must be at least 0, not {value}")


def _check_below_1(**arguments: float) -> None:
    for name, value in arguments.items():
        if not value < 1:
            raise InvalidArgument(f"{name} must be below 1, not {value}")
