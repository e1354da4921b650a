"""The state of a Keras 3 training run, on any backend, and a callback that saves it.

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.keras import CheckpointCallback

callback = CheckpointCallback(Checkpointer())
model.fit(data, epochs=90, initial_epoch=callback.restore(model), callbacks=[callback])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from cloudtrain import environment
from cloudtrain.checkpoint.checkpointer import Checkpointer
from cloudtrain.errors import CheckpointError

__all__ = ["CheckpointCallback", "apply", "capture"]


def capture(model: Any, variables: Sequence[Any] = ()) -> dict[str, Any]:
    """The state of a model and its compiled optimizer, to be saved or extended.

    It consists of the weights, seeds such as those of dropout, and the optimizer's variables with its iteration.

    Args:
        variables: more variables of Keras or TensorFlow to include: any object with ``numpy`` and ``assign``.
    """
    return {
        part: {"names": [_name(one) for one in group], "values": [_value(one) for one in group]}
        for part, group in _parts(model, variables).items()
    }


def apply(state: Mapping[str, Any], model: Any, variables: Sequence[Any] = ()) -> None:
    """The inverse of `capture`, for a built and compiled model with the same layers.

    Raises:
        CheckpointError: a variable differs in dtype or shape, or the number of variables differs. Nothing is
            changed.
    """
    parts = _parts(model, variables)
    for part, group in parts.items():
        _check(part, group, state.get(part, {"names": [], "values": []}))
    for part, group in parts.items():
        for variable, value in zip(group, state[part]["values"]):
            variable.assign(value.astype(variable.numpy().dtype))


class CheckpointCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Saves at the end of every epoch, and immediately when the job is about to be stopped.

    Args:
        every: also save after this many batches within an epoch; None saves when the ``every`` of the Checkpointer is
            due, such as ``"auto"``. A run that resumes from such a checkpoint repeats that epoch's data from the start,
            as Keras cannot skip batches.
    """

    def __init__(self, checkpointer: Checkpointer, every: int | None = None) -> None:
        super().__init__()
        self._checkpointer = checkpointer
        self._every = every
        self._steps = self._epochs = 0

    def restore(self, model: Any) -> int:
        """Resume from the latest checkpoint, if there is one; returns the number of completed epochs.

        Raises:
            CheckpointError: the checkpoint does not fit the model, or none is readable.
        """
        checkpoint = self._checkpointer.restore()
        if checkpoint is not None:
            apply(checkpoint.state["keras"], model)
            self._steps, self._epochs = checkpoint.step, checkpoint.state["epochs"]
        return self._epochs

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        # Not at the end of a batch, which may also be the end of the epoch.
        due = self._steps % self._every == 0 if self._every else self._checkpointer.is_due(self._steps)
        if batch > 0 and (due or environment.preemption()):
            self._save({})

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._steps += 1

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._epochs = epoch + 1
        self._save(logs or {})

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        self._checkpointer.wait()

    def _save(self, metrics: Mapping[str, Any]) -> None:
        state = {"keras": capture(self.model), "epochs": self._epochs}
        self._checkpointer.save(self._steps, state, {name: float(value) for name, value in metrics.items()})
        environment.exit_if_preempted()


def _parts(model: Any, variables: Sequence[Any]) -> dict[str, list[Any]]:
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)
    parts = {
        "model": model.variables,
        "optimizer": optimizer.variables if optimizer else (),
        "variables": variables,
    }
    return {part: list(group) for part, group in parts.items()}


def _check(part: str, own: Sequence[Any], saved: Mapping[str, Any]) -> None:
    if len(own) != len(saved["values"]):
        raise CheckpointError(
            f"the checkpoint does not fit the {part}: it has {len(saved['values'])} variables, expected {len(own)}"
        )
    for variable, name, value in zip(own, saved["names"], saved["values"]):
        here, there = _what(_value(variable)), _what(value)
        if here != there:
            raise CheckpointError(
                f"the checkpoint does not fit the {part}: {name} is {there}, {_name(variable)} is {here}"
            )


def _what(value: np.ndarray[Any, Any]) -> str:
    return f"{value.dtype} {list(value.shape)}"


def _name(variable: Any) -> str:
    return str(getattr(variable, "path", None) or variable.name)


def _value(variable: Any) -> np.ndarray[Any, Any]:
    """A view or a copy. bfloat16, which NumPy lacks, becomes float32, which represents it exactly."""
    value = np.asarray(variable.numpy())
    return value.astype(np.float32) if value.dtype.name == "bfloat16" else value
