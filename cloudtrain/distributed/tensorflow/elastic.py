"""Elastic training: `cloudtrain.distributed.torch.elastic` with states that hold TensorFlow variables.

    @hvd.elastic.run
    def train(state): ...

    train(hvd.elastic.TensorFlowKerasState(model, epoch=0))

Needs PyTorch: the ranks reconnect over its Gloo.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable

import torch

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.tensorflow.optimizer import variables_of
from cloudtrain.distributed.torch.elastic import ObjectState, State, run

__all__ = ["ObjectState", "State", "TensorFlowKerasState", "TensorFlowState", "run"]


class TensorFlowState(ObjectState):
    """Variables, and other values as attributes.

    Args:
        variables: The same on all ranks.
        session: Accepted for compatibility. Variables are eager.
    """

    def __init__(self, variables: Iterable[Any], session: Any = None, **values: Any) -> None:
        own = list(variables)
        super().__init__(_variables=_Variables(lambda: own), **values)


class TensorFlowKerasState(ObjectState):
    """A Keras model and its optimizer, and other values as attributes.

    Args:
        model: A built model.
        optimizer: Defaults to the model's.
        backend: Accepted for compatibility.

    Raises:
        InvalidArgument: The model is not built. Also a ValueError.
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **values: Any) -> None:
        if not model.built:
            raise InvalidArgument("Model must be built first. Run `model.build(input_shape)`.")
        optimizer = optimizer or model.optimizer
        self.model, self.optimizer = model, optimizer
        weights = _Variables(lambda: model.weights)
        steps = _Variables(
            lambda: variables_of(optimizer) if optimizer is not None else [],
            lambda: optimizer.build(model.trainable_weights),
        )
        super().__init__(_weights=weights, _steps=steps, **values)


class _Variables:
    """Gives variables a ``state_dict``.

    Args:
        find: Returns the variables.
        make: Creates the variables that other ranks have and this rank lacks.
    """

    def __init__(self, find: Callable[[], Sequence[Any]], make: Callable[[], Any] = lambda: None) -> None:
        self._find = find
        self._make = make

    def state_dict(self) -> dict[str, Any]:
        return {str(number): _tensor(variable.numpy()) for number, variable in enumerate(self._find())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises InvalidArgument if the number of variables differs from that in ``state``."""
        if len(self._find()) < len(state):
            self._make()
        own = self._find()
        if len(own) != len(state):
            raise InvalidArgument(
                f"the state has {len(state)} variables, this rank {len(own)}",
                hint="Build the same model and optimizer on all ranks first.",
            )
        for number, variable in enumerate(own):
            value = state[str(number)]
            variable.assign(value.numpy() if isinstance(value, torch.Tensor) else value)


def _tensor(value: Any) -> Any:
    """A tensor, which can be handed over to other hosts. An array of a type that torch lacks stays an array."""
    try:
        return torch.tensor(value)
    except TypeError:
        return value
