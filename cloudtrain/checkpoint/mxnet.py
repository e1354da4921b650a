"""The state of an MXNet (Gluon) training run: captures it for a checkpoint, and applies a restored one.

from cloudtrain.checkpoint.mxnet import apply, capture

checkpointer.save(step, capture(net, trainer))
apply(checkpointer.restore().state, net, trainer)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mxnet as mx
import numpy as np

from cloudtrain.errors import CheckpointError

__all__ = ["apply", "capture"]


def capture(net: Any, trainer: Any = None) -> dict[str, Any]:
    """The parameters of a Gluon block and the state of its trainer's optimizer, as NumPy arrays.

    Raises:
        CheckpointError: the trainer keeps the optimizer's state in its kvstore.
    """
    state: dict[str, Any] = {
        "parameters": {name: one.list_data()[0].asnumpy() for name, one in _parameters(net).items()}
    }
    if trainer is not None:
        optimizer = _started(trainer)._optimizer
        state["trainer"] = {
            "states": {index: _arrays(value) for index, value in trainer._updaters[0].states.items()},
            "counts": dict(optimizer._index_update_count),
            "num_update": optimizer.num_update,
            "lr": optimizer.lr,
            "schedule": _numbers(optimizer.lr_scheduler),
        }
    return state


def apply(state: Mapping[str, Any], net: Any, trainer: Any = None) -> None:
    """The inverse of `capture`, for an initialized block with the same layers and a trainer of its parameters.

    Raises:
        CheckpointError: a parameter is missing or differs in dtype or shape, or the state has no trainer. Nothing
            is changed.
    """
    parameters = _parameters(net)
    _check(parameters, state["parameters"])
    if trainer is not None and "trainer" not in state:
        raise CheckpointError("the checkpoint has no trainer", hint="Pass the trainer to capture, too.")
    for name, parameter in parameters.items():
        parameter.set_data(mx.nd.array(state["parameters"][name], dtype=parameter.dtype))
    if trainer is not None:
        _apply_trainer(state["trainer"], _started(trainer))


def _apply_trainer(state: Mapping[str, Any], trainer: Any) -> None:
    optimizer = trainer._optimizer
    for device, updater in enumerate(trainer._updaters):
        for index, value in state["states"].items():
            context = trainer._params[index].list_ctx()[device]
            updater.states[index] = _on(context, value)
            updater.states_synced[index] = True
    optimizer._all_index_update_counts = {
        device: dict(state["counts"]) for device in range(len(trainer._updaters))
    }
    optimizer._index_update_count = optimizer._all_index_update_counts[0]
    optimizer.num_update = state["num_update"]
    optimizer.lr = state["lr"]
    if optimizer.lr_scheduler is not None:
        vars(optimizer.lr_scheduler).update(state["schedule"])


def _parameters(net: Any) -> dict[str, Any]:
    """The parameters by their path in the block, as in ``save_parameters``. Their own names have block counters."""
    parameters: dict[str, Any] = net._collect_params_with_prefix()
    return parameters


def _started(trainer: Any) -> Any:
    """The trainer with its updaters initialized, the way ``save_states`` does it."""
    if not trainer._kv_initialized:
        trainer._init_kvstore()
    if trainer._params_to_init:
        trainer._init_params()
    if trainer._update_on_kvstore:
        raise CheckpointError(
            "the trainer keeps the optimizer's state in its kvstore",
            hint="Create it with update_on_kvstore=False.",
        )
    return trainer


def _check(parameters: Mapping[str, Any], saved: Mapping[str, np.ndarray[Any, Any]]) -> None:
    for name in {**parameters, **saved}:
        if name not in saved or name not in parameters:
            where = "checkpoint" if name not in saved else "model"
            raise CheckpointError(f"the checkpoint does not fit the model: {name} is not in the {where}")
        here = f"{np.dtype(parameters[name].dtype)} {list(parameters[name].shape)}"
        there = f"{saved[name].dtype} {list(saved[name].shape)}"
        if here != there:
            raise CheckpointError(
                f"the checkpoint does not fit: {name} is {there} in the checkpoint and {here} in the model"
            )


def _arrays(value: Any) -> Any:
    """The state of one parameter: an array, nested tuples of arrays, or None."""
    if isinstance(value, (tuple, list)):
        return tuple(_arrays(item) for item in value)
    return value.asnumpy() if isinstance(value, mx.nd.NDArray) else value


def _on(context: Any, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_on(context, item) for item in value)
    return mx.nd.array(value, ctx=context, dtype=value.dtype) if isinstance(value, np.ndarray) else value


def _numbers(scheduler: Any) -> dict[str, Any]:
    """The counters and settings of a learning-rate schedule."""
    kinds = (bool, int, float, str)
    counted = {} if scheduler is None else vars(scheduler)
    return {name: value for name, value in counted.items() if isinstance(value, kinds)}
