"""Chooses the parameters of trials, and which trials to prune.

A suggestion depends only on the seed, the number of the trial and the trials before it, so that a restarted controller
continues as if it had not been killed.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cloudtrain.contract import FailureClass
from cloudtrain.errors import InvalidJob
from cloudtrain.sweep.plan import SweepPlan
from cloudtrain.sweep.space import Choices, Space
from cloudtrain.sweep.trials import COMPLETED, PRUNED, Trial

STARTUP_TRIALS = 10
"""The number of random trials before TPE starts: Optuna's default."""
MEMORY = "memory"
"""The name of the constraint that a trial violates if it runs out of memory."""


class Suggestions(Protocol):
    """The interface of a sampler with its pruner."""

    compares: bool
    """Whether a trial may also be pruned because of new values of other trials."""

    def ask(self, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Choose the parameters of a new trial. Also returns the attributes to store with it."""

    def report(self, number: int, step: int, value: float) -> bool:
        """Record the metric of a running trial at a step. Returns whether to prune the trial."""

    def tell(self, trial: Trial) -> None:
        """Learn from a trial that has ended."""

    def remembered(self, number: int) -> dict[str, Any]:
        """The attributes of a trial that the sampler and the pruner need after a restart."""


def suggestions(plan: SweepPlan, trials: Sequence[Trial]) -> Suggestions:
    """The sampler of a plan, after these trials. Raises InvalidJob if it needs Optuna, which is missing or too old."""
    if plan.sampler == "pbt":
        from cloudtrain.sweep.population import Population

        return Population(plan, trials)
    return Study(plan, trials) if plan.needs_optuna else Independent(plan)


class Independent:
    """Samplers that do not learn: grid, random, quasi-random. They need no library except for scipy."""

    compares = False

    def __init__(self, plan: SweepPlan) -> None:
        self._plan = plan

    def ask(self, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
        return point(self._plan, number), {}

    def report(self, number: int, step: int, value: float) -> bool:
        return False

    def tell(self, trial: Trial) -> None: ...

    def remembered(self, number: int) -> dict[str, Any]:
        return {}


def point(plan: SweepPlan, number: int) -> dict[str, Any]:
    """The parameters of trial ``number`` from a sampler that does not learn."""
    space = plan.space
    if plan.sampler == "grid":
        found: dict[str, Any] = {}
        for name, one in reversed([*space.items()]):  # the first one changes slowest
            points = one.points() or ()
            number, index = divmod(number, len(points))
            found[name] = points[index]
        return {name: found[name] for name in space}
    if plan.sampler == "random":
        source = random.Random(f"{plan.seed} {number}")
        return {name: one.at(source.random()) for name, one in space.items()}
    return {
        name: one.at(place) for (name, one), place in zip(space.items(), _halton(plan, number), strict=True)
    }


def _halton(plan: SweepPlan, number: int) -> Sequence[float]:
    try:
        from scipy.stats import qmc
    except ImportError:
        raise _missing("the sampler quasi-random needs scipy") from None
    sequence = qmc.Halton(len(plan.space), seed=plan.seed)
    sequence.fast_forward(number)
    return [float(place) for place in sequence.random(1)[0]]


def _missing(problem: str) -> InvalidJob:
    return InvalidJob(problem, hint="Run: pip install cmaes optuna scipy")


class Study:
    """A sampler and pruner of Optuna, with a study in memory that is built from the events of the sweep."""

    compares = False

    def __init__(self, plan: SweepPlan, trials: Sequence[Trial]) -> None:
        try:
            import optuna
        except ImportError:
            raise _missing(
                f"the {'pruner' if plan.pruner else 'sampler ' + plan.sampler} needs Optuna"
            ) from None
        if int(optuna.__version__.partition(".")[0]) < 5:
            raise _missing(f"Optuna 5 is needed, and {optuna.__version__} is installed")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna: Any = optuna
        self._plan = plan
        self._distributions = {name: _distribution(one) for name, one in plan.space.items()}
        self._study = self._optuna.create_study(
            study_name=plan.name,
            direction=plan.goal,
            sampler=optuna.samplers.RandomSampler(),
            pruner=self._pruner(),
        )
        self._trials: dict[int, Any] = {}
        """The running trials that are in the study."""
        self._ended: set[int] = set()
        for trial in trials:
            self._add(trial)

    def ask(self, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
        if self._plan.sampler not in ("tpe", "cmaes"):
            parameters = point(self._plan, number)
            self._add(Trial(number, "", parameters, 0.0))
            return parameters, {}
        self._study.sampler = self._sampler((self._plan.seed + 1_000_003 * number) % 2**32)
        asked = self._study.ask(self._distributions)
        self._trials[number] = asked
        return {name: asked.params[name] for name in self._plan.space}, self.remembered(number)

    def report(self, number: int, step: int, value: float) -> bool:
        trial = self._trials.get(number)
        if trial is None:
            return False
        trial.report(value, step)
        return self._plan.pruner is not None and bool(trial.should_prune())

    def tell(self, trial: Trial) -> None:
        asked = self._trials.pop(trial.number, None)
        if asked is None:
            return  # the trial is outside of the space
        learns = self._plan.sampler == "tpe"  # CMA-ES has no constraints
        is_large = learns and trial.failure_class == FailureClass.OUT_OF_MEMORY
        if learns and (is_large or trial.status in (COMPLETED, PRUNED)):
            asked.set_constraint(MEMORY, 1.0 if is_large else -1.0)
        states = self._optuna.trial.TrialState
        if trial.status == COMPLETED and trial.value is not None:
            self._study.tell(asked, trial.value)
        else:
            self._study.tell(
                asked, state=states.PRUNED if is_large or trial.status == PRUNED else states.FAIL
            )

    def remembered(self, number: int) -> dict[str, Any]:
        asked = self._trials.get(number)
        if asked is None:
            return {}
        found = self._study.get_trials(deepcopy=False)[asked.number].system_attrs
        return {name: value for name, value in found.items() if _is_json(value)}

    def importances(self) -> dict[str, float]:
        """Each parameter's share of the variance of the values, the greatest first.

        Raises ValueError or RuntimeError if it cannot be computed from the values.
        """
        return dict(self._optuna.importance.get_param_importances(self._study))

    def _add(self, trial: Trial) -> None:
        """Add a trial from the events to the study, with its end if it has ended. Trials outside of the space are
        skipped."""
        space = self._plan.space
        if set(trial.parameters) != set(space) or not _is_inside(space, trial.parameters):
            return
        self._study.add_trial(
            self._optuna.trial.create_trial(
                state=self._optuna.trial.TrialState.RUNNING,
                params=dict(trial.parameters),
                distributions=self._distributions,
                system_attrs=dict(trial.attributes),
                intermediate_values=dict(trial.values),
            )
        )
        frozen = self._study.get_trials(deepcopy=False)[-1]
        self._trials[trial.number] = self._optuna.Trial(self._study, frozen._trial_id)
        if trial.has_ended:
            self.tell(trial)

    def _sampler(self, seed: int) -> Any:
        samplers = self._optuna.samplers
        if self._plan.sampler == "tpe":
            return samplers.TPESampler(seed=seed, n_startup_trials=STARTUP_TRIALS, constant_liar=True)
        try:
            return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
        except ImportError:
            raise _missing("the sampler cmaes needs the package cmaes") from None

    def _pruner(self) -> Any:
        pruners, first = self._optuna.pruners, self._plan.prune_after
        if self._plan.pruner == "asha":
            return pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=3)
        if self._plan.pruner == "hyperband":
            return pruners.HyperbandPruner(min_resource=first)
        if self._plan.pruner == "median":
            return pruners.MedianPruner(n_warmup_steps=first - 1)
        return pruners.NopPruner()


def _is_inside(space: Space, parameters: Mapping[str, Any]) -> bool:
    return all(one.contains(parameters[name]) for name, one in space.items())


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _distribution(one: Any) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(one, Choices):
        return CategoricalDistribution(one.values)
    if one.is_whole:
        return IntDistribution(int(one.low), int(one.high), log=one.is_log)
    return FloatDistribution(one.low, one.high, log=one.is_log)


def usable(value: Any) -> float | None:
    """``value`` as a finite number; None for NaN, infinity and other types."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
