"""LARS and LAMB for Keras 3, on all its backends, as defined in their papers.

    from cloudtrain.optimizers.keras import LARS

Variables with at most one dimension, such as biases, are neither decayed nor adapted, as in the authors' training
runs. Variables excluded with ``exclude_from_weight_decay`` are not decayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

__all__ = ["LAMB", "LARS"]


class _Decaying:
    """Makes weight decay part of the update; Keras decays before the update. Must precede Keras's class in the MRO."""

    weight_decay: float | None

    def _apply_weight_decay(self, variables: Sequence[Any]) -> None:
        """Do nothing: see `_decay`."""

    def _decay(self, variable: Any) -> float:
        decays: bool = self._use_weight_decay(variable)  # type: ignore[attr-defined]
        return (self.weight_decay or 0.0) if decays else 0.0


@keras.saving.register_keras_serializable("cloudtrain")
class LARS(_Decaying, keras.optimizers.Optimizer):  # type: ignore[misc]
    """Layer-wise adaptive rate scaling (You, Gitman, Ginsburg 2017, https://arxiv.org/abs/1708.03888).

    For each variable ``w`` with gradient ``g``, Algorithm 1 with the trust coefficient of equation 6::

        local = trust_coefficient * |w| / (|g| + weight_decay * |w|)
        v = momentum * v + learning_rate * local * (g + weight_decay * w)
        w = w - v

    ``local`` is 1 where ``w`` is zero.

    Args:
        learning_rate: A number or a schedule.
        options: The common arguments of Keras optimizers.
    """

    def __init__(
        self,
        learning_rate: Any,
        momentum: float = 0.9,
        weight_decay: float | None = None,
        trust_coefficient: float = 0.001,
        name: str = "lars",
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, weight_decay=weight_decay, name=name, **options)
        self.momentum = momentum
        self.trust_coefficient = trust_coefficient

    def build(self, variables: Sequence[Any]) -> None:
        if not self.built:
            super().build(variables)
            # named as in Keras's SGD, so that callbacks that correct the momentum find it
            self.momentums = self.add_optimizer_variables(variables, "momentum")

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        rate = ops.cast(learning_rate, variable.dtype)
        direction = ops.cast(gradient, variable.dtype)
        if len(variable.shape) > 1:
            decay = self._decay(variable)
            weight, slope = _norm(variable), _norm(direction)
            rate = rate * _ratio(self.trust_coefficient * weight, slope + decay * weight)
            direction = direction + decay * variable
        velocity = self.momentums[self._get_variable_index(variable)]
        self.assign(velocity, self.momentum * velocity + rate * direction)
        self.assign_sub(variable, velocity)

    def get_config(self) -> dict[str, Any]:
        own = {"momentum": self.momentum, "trust_coefficient": self.trust_coefficient}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable("cloudtrain")
class LAMB(_Decaying, keras.optimizers.Lamb):  # type: ignore[misc]
    """Layer-wise adaptive moments (You et al. 2019, https://arxiv.org/abs/1904.00962), Algorithm 2.

    For each variable ``w`` with gradient ``g``, in step ``t``::

        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g ** 2
        r = m / (1 - beta_1 ** t) / (sqrt(v / (1 - beta_2 ** t)) + epsilon) + weight_decay * w
        w = w - learning_rate * |w| / |r| * r

    The ratio of the norms is 1 where one of them is zero. Takes the arguments of ``keras.optimizers.Lamb``, which
    decays weights outside the ratio, and adapts biases, too.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        dtype, index = variable.dtype, self._get_variable_index(variable)
        gradient = ops.cast(gradient, dtype)
        rate, step = ops.cast(learning_rate, dtype), ops.cast(self.iterations + 1, dtype)
        mean, square = self._momentums[index], self._velocities[index]
        self.assign_add(mean, (gradient - mean) * (1 - self.beta_1))
        self.assign_add(square, (ops.square(gradient) - square) * (1 - self.beta_2))
        deviation = ops.sqrt(square / (1 - self.beta_2**step)) + self.epsilon
        direction = mean / (1 - self.beta_1**step) / deviation
        if len(variable.shape) > 1:
            direction = direction + self._decay(variable) * variable
            rate = rate * _ratio(_norm(variable), _norm(direction))
        self.assign_sub(variable, rate * direction)


def _norm(tensor: Any) -> Any:
    return ops.sqrt(ops.sum(ops.square(tensor)))


def _ratio(above: Any, below: Any) -> Any:
    """``above / below``; 1 where either is zero."""
    return ops.where(ops.logical_and(above > 0, below > 0), above / below, ops.ones_like(above))
