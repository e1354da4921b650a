"""When `Checkpointer.maybe_save` saves, which checkpoints are kept, and which one is best."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Union

from cloudtrain.errors import CheckpointError

Every = Union[int, str, timedelta, None]

_UNITS = {"s": 1, "m": 60, "h": 3600}


class Schedule:
    """When a save is due: after a number of steps or of seconds, or never.

    Attributes:
        by_time: whether a save can become due at different steps on different ranks.
        seconds: between two saves; None if steps are counted.
    """

    def __init__(self, steps: int | None = None, seconds: float | None = None) -> None:
        self.by_time = seconds is not None
        self._steps, self.seconds = steps, seconds
        self._last: int | None = None
        self._saved_at = time.monotonic()

    def is_due(self, step: int) -> bool:
        """Whether to save ``step``: at each multiple, or at the first step after it if steps are skipped.

        Call it for every step, in ascending order.
        """
        if self.seconds is not None:
            return time.monotonic() - self._saved_at >= self.seconds
        if self._steps is None:
            return False
        last = step - 1 if self._last is None else self._last
        due = step // self._steps > last // self._steps
        if not due:
            self._last = step
        return due

    def saved(self, step: int) -> None:
        """Record that ``step`` has been saved."""
        self._last, self._saved_at = step, time.monotonic()

    def restored(self, step: int, job: str | None) -> None:
        """Record that the training continues after ``step``, which ``job`` has saved, if any."""
        self.saved(step)

    def stopped(self, seconds: float) -> None:
        """Record the time for which a save has stopped the training."""

    def committed(self, seconds: float) -> None:
        """Record the time after which a save was durable. Called by the thread that saves."""


def schedule(every: Every, name: str = "every") -> Schedule:
    """The schedule for a number of steps, or for a time such as ``"10m"``. With None no save is ever due."""
    if every is None:
        return Schedule()
    if isinstance(every, int) and not isinstance(every, bool) and every > 0:
        return Schedule(steps=every)
    seconds = every.total_seconds() if isinstance(every, timedelta) else _seconds(every)
    if not seconds > 0:
        raise CheckpointError(
            f"{name}={every!r} is neither a number of steps nor a time",
            hint='Give steps as 500, or a time as "30s", "10m", "1.5h" or a timedelta.',
        )
    return Schedule(seconds=seconds)


def _seconds(text: object) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text) if isinstance(text, str) else None
    return float(match[1]) * _UNITS[match[2]] if match else 0.0


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
