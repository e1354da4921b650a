"""LARS and LAMB for PyTorch, as defined in their papers.

    from cloudtrain.optimizers.torch import LARS

Parameters of at most one dimension, such as biases and those of normalization layers, are excluded from weight decay
and adaptation, as in the experiments of both papers. A step never synchronizes with the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable

import torch
from torch import Tensor

from cloudtrain.distributed.errors import InvalidArgument

__all__ = ["LAMB", "LARS"]


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
        for parameter, gradient, group in _trained(self):
            rate, direction = group["lr"], gradient
            if parameter.ndim > 1:
                decay = group["weight_decay"]
                weight, slope = _norm(parameter), _norm(gradient)
                rate = rate * _ratio(group["trust_coefficient"] * weight, slope + decay * weight)
                direction = gradient.add(parameter, alpha=decay)
            state = self.state[parameter]
            if not state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            velocity = state["momentum_buffer"]
            velocity.mul_(group["momentum"]).add_((direction * rate).to(velocity.dtype))
            parameter.sub_(velocity)
        return loss


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
        for parameter, gradient, group in _trained(self):
            state = self.state[parameter]
            if not state:
                state["step"] = 0
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
            state["step"] += 1
            beta1, beta2 = group["betas"]
            mean, square = state["exp_avg"], state["exp_avg_sq"]
            mean.lerp_(gradient, 1 - beta1)
            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            deviation = (square / (1 - beta2 ** state["step"])).sqrt_().add_(group["eps"])
            direction = (mean / (1 - beta1 ** state["step"])).div_(deviation)
            rate = group["lr"]
            if parameter.ndim > 1:
                direction.add_(parameter, alpha=group["weight_decay"])
                rate = rate * _ratio(_norm(parameter), _norm(direction))
            parameter.sub_((direction * rate).to(parameter.dtype))
        return loss


def _norm(tensor: Tensor) -> Tensor:
    """The Euclidean norm, in float32 for half precision, whose squares would overflow."""
    norm: Tensor = torch.linalg.vector_norm(tensor, dtype=torch.float32 if tensor.itemsize < 4 else None)
    return norm


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    """The ratio, or 1 if either is zero. Computed on the device, to avoid a synchronization with the host."""
    return torch.where((above > 0) & (below > 0), above / below, torch.ones_like(above))


def _evaluated(closure: Callable[[], Any] | None) -> Any:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def _trained(optimizer: torch.optim.Optimizer) -> Iterator[tuple[Tensor, Tensor, dict[str, Any]]]:
    """Each parameter that has a gradient, with the gradient and its group."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            if parameter.grad.is_sparse:
                raise InvalidArgument(
                    f"{type(optimizer).__name__} does not support sparse gradients",
                    hint="Create the embedding with sparse=False.",
                )
            yield parameter, parameter.grad, group


def _check(**arguments: float) -> None:
    for name, value in arguments.items():
        if not value >= 0:
            raise InvalidArgument(f"{name} must be at least 0, not {value}")


def _check_below_1(**arguments: float) -> None:
    for name, value in arguments.items():
        if not value < 1:
            raise InvalidArgument(f"{name} must be below 1, not {value}")
