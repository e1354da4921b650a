"""Analysis of a sweep's trials: the best so far, the importance of parameters, and where trials lie on their axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

from cloudtrain.errors import CloudtrainError
from cloudtrain.sweep.space import Range
from cloudtrain.sweep.trials import COMPLETED, Trial
from cloudtrain.watch.sweeps import SweepView, shown

FEWEST = 10
"""The importance of parameters is not meaningful with fewer completed trials."""
MOST_TICKS = 24


def completed(view: SweepView) -> list[Trial]:
    """The trials that have completed with a value."""
    return [trial for trial in view.trials.all if trial.status == COMPLETED and trial.value is not None]


def best_first(view: SweepView) -> list[Trial]:
    """The trials that have completed with a value, the best one first."""
    sign = 1.0 if view.plan.goal == "minimize" else -1.0
    return sorted(completed(view), key=lambda trial: sign * (trial.value or 0.0))


def best_over_time(view: SweepView) -> list[tuple[float, float]]:
    """The end of each of these trials, in seconds since the epoch, and the best value by then."""
    better = min if view.plan.goal == "minimize" else max
    found: list[tuple[float, float]] = []
    for trial in sorted(completed(view), key=lambda trial: trial.ended_at or 0.0):
        assert trial.value is not None and trial.ended_at is not None
        found.append((trial.ended_at, better(found[-1][1], trial.value) if found else trial.value))
    return found


def importance(view: SweepView) -> tuple[Mapping[str, float], str]:
    """Each parameter's share of the variance of the values, the greatest first, or why it is not known."""
    count = len(completed(view))
    if len(view.plan.space) < 2:
        return {}, "There is one parameter only."
    if count < FEWEST:
        return {}, (
            f"Too few trials have completed: {count}, and {FEWEST} are needed to see which parameters matter."
        )
    return _importances(view.name, count, repr(view.plan.space), _View(view))


class _View:
    """A view as an argument of a cached function, for which all views of a sweep are equal."""

    def __init__(self, view: SweepView) -> None:
        self.view = view

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _View) and other.view.trials.created_at == self.view.trials.created_at

    def __hash__(self) -> int:
        return hash(self.view.trials.created_at)


@lru_cache(16)
def _importances(_name: str, _count: int, _space: str, given: _View) -> tuple[Mapping[str, float], str]:
    """The share of each parameter according to Optuna's default evaluator, or why there is none."""
    from cloudtrain.sweep.suggest import Study

    try:
        return Study(given.view.plan, completed(given.view)).importances(), ""
    except CloudtrainError as error:
        return {}, f"Optuna computes it: {error.hint or error.message}"
    except Exception as error:  # Optuna raises various errors, for example if all values are equal
        return {}, f"Optuna cannot compute it from these trials: {error}"


def axis_of(
    view: SweepView, name: str, trials: Sequence[Trial]
) -> tuple[list[float], list[tuple[float, str]]]:
    """The position of each trial on the axis of a parameter, from 0 to 1, and the labels of the axis."""
    values = [trial.parameters[name] for trial in trials]
    given = view.plan.space[name]
    is_number = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in values)
    if isinstance(given, Range) and is_number:
        low, high = min(given.low, *values), max(given.high, *values)
        scale = math.log if given.is_log and low > 0 else float
        places = [part_of(scale(one), scale(low), scale(high)) for one in values]
        return places, [(0.0, f"{low:.4g}"), (1.0, f"{high:.4g}")]
    choices = list(dict.fromkeys([*map(repr, given.points() or ()), *map(repr, values)]))
    most = max(len(choices) - 1, 1)
    labels = {repr(one): shown(one) for one in (*(given.points() or ()), *values)}
    ticks = [(index / most, labels[one]) for index, one in enumerate(choices)]
    return [choices.index(repr(one)) / most for one in values], ticks if len(ticks) <= MOST_TICKS else ticks[
        :: len(ticks) // 8
    ]


def part_of(value: float, low: float, high: float) -> float:
    part = (value - low) / (high - low) if high > low else 0.5
    return part if math.isfinite(part) else 0.5
