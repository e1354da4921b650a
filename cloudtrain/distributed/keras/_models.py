"""Saved models, to be trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cloudtrain.distributed.keras._optimizer import Distributed
from cloudtrain.distributed.keras.optimizer import DistributedOptimizer
from cloudtrain.distributed.tensorflow.compression import Compressor


def load(
    keras: Any,
    filepath: Any,
    custom_optimizers: Sequence[type[Any]] | None,
    custom_objects: Mapping[str, Any] | None,
    compression: type[Compressor],
) -> Any:
    """See ``load_model``; ``keras`` is whose models they are."""
    known = {cls.__name__: cls for cls in custom_optimizers or ()}
    model = keras.models.load_model(filepath, custom_objects={**known, **(custom_objects or {})})
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not isinstance(optimizer, Distributed):  # as custom_objects may make it
        DistributedOptimizer(optimizer, compression=compression)
    return model
