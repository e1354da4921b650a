"""The plan of a sweep, which is validated once and stored in its first event."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypedDict

from cloudtrain.errors import InvalidJob, nearest
from cloudtrain.spec import check_job_name
from cloudtrain.spec.conversion import LONGEST_SHOWN
from cloudtrain.spec.names import MAX_LENGTH
from cloudtrain.spec.warnings import is_exposed_secret
from cloudtrain.sweep.space import MOST_COMBINATIONS, Choices, Space, combinations, read_space, to_document

if TYPE_CHECKING:
    from typing_extensions import Unpack

SAMPLERS = ("cmaes", "grid", "pbt", "quasi-random", "random", "tpe")
PRUNERS = ("asha", "hyperband", "median")
GOALS = ("maximize", "minimize")


class Options(TypedDict, total=False):
    """Arguments of `make_plan` and `cloudtrain.Sweep`, other than the name, the space and the metric."""

    goal: str | None
    trials: int | None
    parallel: int
    sampler: str
    pruner: str | None
    prune_after: int
    seed: int | None
    max_cost: float | None
    trials_per_host: int | None


FIELDS = tuple(sorted((*Options.__annotations__, "metric", "space")))
"""The fields of ``sweep`` in a job file, which are also arguments of `Sweep`."""

DEFAULT_TRIALS = 20
LARGEST_CAP = 1e12
"""The largest ``max_cost``, which is the same as for a job."""
_GREATER_IS_BETTER = re.compile(
    r"acc|f1|auc|score|precision|recall|bleu|rouge|reward|return|iou|dice|map|r2|ndcg"
)
_LESS_IS_BETTER = re.compile(
    r"loss|err|perplexity|ppl|mse|mae|rmse|nll|latency|seconds|time|cost|wer|cer|regret"
)


@dataclass(frozen=True)
class SweepPlan:
    """A sweep, without the job that it varies."""

    name: str
    space: Space
    metric: str
    goal: str
    trials: int
    """The total number of trials, including those of continuations."""
    parallel: int = 1
    sampler: str = "tpe"
    pruner: str | None = None
    prune_after: int = 1
    """The first step at which a trial can be pruned. The sampler ``pbt`` compares trials at multiples of it."""
    seed: int = 0
    max_cost: float | None = None
    """The most that all trials may cost in total, in the currency of their price."""
    trials_per_host: int | None = None
    """The number of trials that share a host and its GPUs. None: hosts are not shared; on this machine, all concurrent
    trials share it."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The job that trials vary, ready for `cloudtrain.submission.prepare` in any folder."""
    platform: str = ""
    id: str = ""
    """A random id in the environment of each trial, which shows that the job belongs to the sweep."""

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "space": to_document(self.space)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> SweepPlan:
        """The inverse of `to_dict`."""
        return cls(**{**record, "space": read_space(record["space"])})

    def trial_name(self, number: int) -> str:
        return f"{self.name}-{number:04d}"

    @property
    def needs_optuna(self) -> bool:
        return self.sampler in ("tpe", "cmaes") or self.pruner is not None

    @property
    def prunes(self) -> bool:
        """Whether trials may be ended early, so that their values are looked at while they run."""
        return self.pruner is not None or self.sampler == "pbt"


def make_plan(name: str, space: Any, metric: str | None, **options: Unpack[Options]) -> SweepPlan:
    """Check the arguments, and fill in defaults. Raises InvalidJob."""
    found = _checked_space(space)
    if not isinstance(metric, str) or not metric.strip():
        raise InvalidJob(
            "metric: the sweep has no metric", hint="Name the one that trials report: --metric loss"
        )
    given: dict[str, Any] = {**options}
    if given.get("trials_per_host") is not None:
        given.setdefault("parallel", given["trials_per_host"])
    goal, trials, seed = (given.pop(field, None) for field in ("goal", "trials", "seed"))
    plan = SweepPlan(name, found, metric, "", DEFAULT_TRIALS, id=os.urandom(8).hex(), **given)
    _check_choice("sampler", plan.sampler, SAMPLERS)
    if plan.pruner is not None:
        _check_choice("pruner", plan.pruner, PRUNERS)
    points = combinations(found) if plan.sampler == "grid" else MOST_COMBINATIONS
    if trials is None:
        trials = points if plan.sampler == "grid" else DEFAULT_TRIALS
    _check_number("trials", trials, MOST_COMBINATIONS)
    if plan.trials_per_host is not None:
        _check_number("trials_per_host", plan.trials_per_host, 1000)
    _check_number("parallel", plan.parallel, 1000)
    _check_number("prune_after", plan.prune_after, 10**9)
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31):
        raise InvalidJob(f"seed: {seed!r} is not a whole number from 0 to {2**31 - 1}")
    if plan.sampler == "pbt":
        _check_population(plan)
    cap = plan.max_cost
    if cap is not None and not (isinstance(cap, (int, float)) and 0 < cap <= LARGEST_CAP):
        raise InvalidJob(
            f"max_cost: {str(cap)[:LONGEST_SHOWN]} is not a number above 0, up to {LARGEST_CAP:,.0f}"
        )
    check_job_name(name)
    if len(name) > MAX_LENGTH - 5:
        raise InvalidJob(
            f"the name {name} is too long: {MAX_LENGTH - 5} characters, and the number of the trial",
            hint="Choose a shorter name: --name NAME",
        )
    chosen = int.from_bytes(os.urandom(4), "big") >> 1 if seed is None else seed
    return replace(plan, goal=_goal(metric, goal), trials=min(trials, points), seed=chosen)


def _check_choice(label: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise InvalidJob(f"{label}: there is no {label} {value!r}", hint=nearest(str(value), known))


def changed(plan: SweepPlan, *, more: int = 0, space: Any = None, parallel: int | None = None) -> SweepPlan:
    """``plan`` with ``more`` trials, a new space, or a new ``parallel``. Raises InvalidJob."""
    plan = replace(plan, space=_checked_space(space)) if space else plan
    points = combinations(plan.space) if plan.sampler == "grid" and not space else MOST_COMBINATIONS
    if plan.sampler == "grid" and space:
        raise InvalidJob(
            "a grid cannot continue with another space: its trials are numbered by the old one",
            hint="Start a new sweep.",
        )
    if more < 0:
        raise InvalidJob(f"trials: {more} more is less than none")
    if parallel is not None:
        _check_number("parallel", parallel, 1000)
    plan = replace(plan, trials=min(plan.trials + more, points), parallel=parallel or plan.parallel)
    if plan.sampler == "pbt":
        _check_population(plan)
    return plan


def _check_population(plan: SweepPlan) -> None:
    """Raises InvalidJob if a plan with the sampler ``pbt`` has no population that can evolve."""
    if plan.pruner is not None:
        raise InvalidJob(
            f"pruner: the sampler pbt itself ends the worst trials, not {plan.pruner}",
            hint="Leave it out. prune_after says after how many steps trials are compared.",
        )
    if plan.parallel < 2:
        raise InvalidJob(
            "parallel: the sampler pbt compares trials that run at the same time, and there is one",
            hint="Let at least 4 run: --parallel 4, with more --trials, which replace the worst.",
        )
    for name, one in plan.space.items():
        if isinstance(one, Choices) and any(isinstance(value, (str, bool)) for value in one.values):
            raise InvalidJob(
                f"search {name}: the sampler pbt changes values a little during a training, and these have no "
                "order",
                hint=f"Search a range or numbers, or set it for all trials: --set hyperparameters.{name}=VALUE",
            )


def _checked_space(given: Any) -> Space:
    """The space, which must not contain secrets, because hyperparameters are stored and shown everywhere."""
    space = read_space(given)
    for name, one in space.items():
        values = one.values if isinstance(one, Choices) else ()
        if any(isinstance(value, str) and is_exposed_secret(name, value) for value in values):
            raise InvalidJob(
                f"search {name}: a choice looks like a secret, and the hyperparameters of trials are stored and shown",
                hint="Search for the name of a variable instead, and pass the variables: --secret NAME, or "
                "secrets=[NAME]",
            )
    return space


def _check_number(name: str, value: Any, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidJob(f"{name}: {str(value)[:LONGEST_SHOWN]} is not a whole number from 1 to {most:,}")


def _goal(metric: str, goal: str | None) -> str:
    if goal in GOALS:
        return goal
    if goal is not None:
        raise InvalidJob(f"goal: there is no goal {goal!r}", hint=nearest(str(goal), GOALS))
    lower = metric.lower()
    less, greater = _LESS_IS_BETTER.search(lower), _GREATER_IS_BETTER.search(lower)
    if bool(less) == bool(greater):
        raise InvalidJob(
            f"metric: whether a greater {metric} is better does not follow from its name",
            hint="Say it: --goal maximize or --goal minimize",
        )
    return "minimize" if less else "maximize"


def check_metric(plan: SweepPlan, text: str) -> None:
    """Refuse a metric that neither a metric definition nor the source contains.

    Args:
        text: the source of the job.

    Raises:
        InvalidJob: the metric would never have a value.
    """
    definitions = [one for one in plan.fields.get("metric_definitions") or () if isinstance(one, Mapping)]
    names = [str(one.get("Name")) for one in definitions]
    if plan.metric in names or not names or plan.metric in text:
        return
    raise InvalidJob(
        f"metric: nothing reports {plan.metric}: no metric definition has this name, and the source does not "
        "contain it",
        hint=nearest(plan.metric, names),
    )
