"""Keras' own choice of XLA, which cannot compile a training step that waits for other ranks."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import cloudtrain.distributed.numpy as hvd

AUTO = "auto"
"""The default of Keras 3: XLA on GPUs."""


def choose_without_xla(keras: Any) -> None:
    """Make the default of ``compile(jit_compile=...)`` mean no XLA for all models, while there are several ranks.

    For all models, because a custom ``train_step`` may use a tape, or other optimizers than the model's. tf_keras never
    chooses XLA.
    """
    # In the class that defines it: Keras does not call what a subclass overrides when it loads a model.
    owner = next(base for base in keras.Model.__mro__ if "compile" in vars(base))
    original = owner.compile
    parameters = list(inspect.signature(original).parameters.values())
    position = next((n for n, one in enumerate(parameters) if one.default == AUTO), None)
    if position is None or hasattr(original, "__wrapped_by_cloudtrain__"):
        return
    name = parameters[position].name

    @functools.wraps(original)
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = kwargs.get(name, AUTO) == AUTO and len(args) < position
        applies = keras.backend.backend() == "tensorflow" and hvd.is_initialized() and hvd.size() > 1
        if chosen and applies:
            kwargs[name] = False
        return original(self, *args, **kwargs)

    compile.__wrapped_by_cloudtrain__ = True  # type: ignore[attr-defined]
    owner.compile = compile
