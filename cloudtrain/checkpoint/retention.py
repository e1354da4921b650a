"""Which checkpoints are kept, and which one is best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Union

from cloudtrain.errors import CheckpointError

BestArgument = Union[str, "tuple[str, str]", None]


@dataclass(frozen=True)
class BestMetric:
    """The metric by which checkpoints are compared."""

    name: str
    largest: bool
    """Whether larger values are better."""

    @classmethod
    def of(cls, argument: BestArgument) -> BestMetric | None:
        """From ``"loss"``, for which smaller is better, or ``("accuracy", "max")``."""
        if argument is None:
            return None
        pair = (argument, "min") if isinstance(argument, str) else argument
        name, mode = pair if isinstance(pair, (tuple, list)) and len(pair) == 2 else (None, None)
        if not isinstance(name, str) or mode not in ("min", "max"):
            raise CheckpointError(
                f"best={argument!r} is not a metric", hint='For example "loss", or ("accuracy", "max").'
            )
        return cls(name, mode == "max")

    def ranked(self, metrics: Mapping[int, Mapping[str, float]]) -> list[int]:
        """The steps that have the metric, best first; of equal ones the newest first."""
        values = {step: numbers.get(self.name, math.nan) for step, numbers in metrics.items()}
        sign = -1 if self.largest else 1
        return sorted(
            (step for step, value in values.items() if not math.isnan(value)),
            key=lambda step: (sign * values[step], -step),
        )


@dataclass(frozen=True)
class RetentionPolicy:
    """Keeps the ``newest`` checkpoints and the best one; None keeps all."""

    newest: int | None
    best: BestMetric | None

    def expired(self, intact: Mapping[int, Mapping[str, float]], damaged: set[int]) -> list[int]:
        """The steps to delete, ascending.

        Args:
            intact: the metrics of the intact checkpoints by step.
            damaged: the steps of the damaged ones, which do not count as kept.
        """
        if self.newest is None or len(intact) <= self.newest:
            return []
        oldest = sorted(intact)[-self.newest]
        best = self.best.ranked(intact)[:1] if self.best else []
        return sorted(step for step in {*intact, *damaged} if step < oldest and step not in best)
