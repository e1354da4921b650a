"""Which checkpoints are kept, and which is the best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Union

from cloudtrain.errors import CheckpointError

BestArgument = Union[str, "tuple[str, str]", None]


@dataclass(frozen=True)
class Best:
    """The metric by which checkpoints are compared."""

    metric: str
    largest: bool

    @classmethod
    def of(cls, argument: BestArgument) -> Best | None:
        """From ``"loss"``, which is best where it is smallest, or ``("accuracy", "max")``."""
        if argument is None:
            return None
        pair = (argument, "min") if isinstance(argument, str) else argument
        metric, mode = pair if isinstance(pair, (tuple, list)) and len(pair) == 2 else (None, None)
        if not isinstance(metric, str) or mode not in ("min", "max"):
            raise CheckpointError(
                f"best={argument!r} is no metric", hint='Give such as "loss", or ("accuracy", "max").'
            )
        return cls(metric, mode == "max")

    def ranked(self, metrics: Mapping[int, Mapping[str, float]]) -> list[int]:
        """The steps that have the metric, the best first; of equal ones the newest first."""
        values = {step: numbers.get(self.metric, math.nan) for step, numbers in metrics.items()}
        sign = -1 if self.largest else 1
        return sorted(
            (step for step, value in values.items() if not math.isnan(value)),
            key=lambda step: (sign * values[step], -step),
        )


@dataclass(frozen=True)
class Keep:
    """The newest ones, as many as ``newest``, and the best one. None keeps all."""

    newest: int | None
    best: Best | None

    def doomed(self, whole: Mapping[int, Mapping[str, float]], damaged: set[int]) -> list[int]:
        """The steps to delete, ascending: of ``whole`` ones with their metrics, and of ``damaged`` ones."""
        if self.newest is None or len(whole) <= self.newest:
            return []
        oldest = sorted(whole)[-self.newest]
        best = self.best.ranked(whole)[:1] if self.best else []
        return sorted(step for step in {*whole, *damaged} if step < oldest and step not in best)
