"""Tuners on platforms other than SageMaker: runs a search as a sweep, and describes the sweep in SageMaker's form."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any

from cloudtrain.config import read_config
from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.errors import InvalidJob, TrainingFailed
from cloudtrain.estimator import Estimator
from cloudtrain.platforms import get_platform
from cloudtrain.spec import TrainingJob
from cloudtrain.sweep import StartedSweep, Sweep
from cloudtrain.sweep.space import Choices, Space
from cloudtrain.sweep.trials import PRUNED, STOPPED, Trial, Trials
from cloudtrain.tuning._request import Candidate, Search, base_of, new_tuning_job_name, tags_of
from cloudtrain.tuning.configuration import (
    CategoricalParameter,
    ContinuousParameter,
    IntegerParameter,
    ParameterRange,
)
from cloudtrain.tuning.job import TuningJob

SAMPLERS = {"Bayesian": "tpe", "Grid": "grid", "Hyperband": "tpe", "Random": "random"}
ONLY_ON_SAGEMAKER = {
    "autotune": "Give a range for each hyperparameter.",
    "completion_criteria_config": "Stop the search when it is good enough: tuner.stop_tuning_job()",
    "max_runtime_in_seconds": "Limit each training job with max_run, and their number with max_jobs.",
    "warm_start_config": "Continue the earlier search instead: cloudtrain sweep continue NAME --trials 10",
}
"""Arguments of a tuner that sweeps do not support, and what to do instead."""


def runs_on_sagemaker(estimator: Estimator) -> bool:
    """Whether the jobs of an estimator run on SageMaker. Raises InvalidJob if it does not describe a job."""
    from cloudtrain.submission import default_platform

    job = TrainingJob.from_dict({**read_config(), **estimator.fields})
    return (job.platform or default_platform(job)) == "sagemaker"


def sweep_of(candidates: Sequence[Candidate], search: Search, name: str | None, base: str | None) -> Sweep:
    """The search as a sweep.

    Raises:
        InvalidJob: only SageMaker supports such a search. The hint says what to do instead.
    """
    candidate = candidates[0]
    if len(candidates) > 1:
        raise _only_on_sagemaker("a search over several estimators", "Start a tuner for each of them.")
    if candidate.instance_configs:
        raise _only_on_sagemaker("instance_configs", "Give the estimator one instance_type.")
    for argument, instead in ONLY_ON_SAGEMAKER.items():
        if getattr(search, argument):
            raise _only_on_sagemaker(argument, instead)
    space = {one: kind for one, kind in candidate.ranges.items() if _constant(kind) is None}
    constants = {one: _constant(kind) for one, kind in candidate.ranges.items() if one not in space}
    estimator = copy.copy(candidate.estimator)
    estimator.fields = dict(estimator.fields)
    estimator.fields["hyperparameters"] = {**(estimator.fields.get("hyperparameters") or {}), **constants}
    if candidate.metric_definitions is not None:
        estimator.fields["metric_definitions"] = [dict(one) for one in candidate.metric_definitions]
    if tags := tags_of(search.tags, tags_of(estimator.fields.get("tags"), ())):
        estimator.fields["tags"] = tags
    is_hyperband = search.strategy == "Hyperband"
    hyperband = search.strategy_config.hyperband_strategy_config if search.strategy_config else None
    return Sweep(
        estimator,
        space,
        candidate.objective_metric_name,
        goal=search.objective_type.lower(),
        trials=search.max_jobs,
        parallel=search.max_parallel_jobs,
        sampler=SAMPLERS[search.strategy],
        pruner="hyperband" if is_hyperband else "median" if search.early_stopping_type == "Auto" else None,
        prune_after=hyperband.min_resource if is_hyperband and hyperband else 1,
        seed=search.random_seed,
        name=name or (new_tuning_job_name(base) if base else None),
    )


def _only_on_sagemaker(what: str, instead: str) -> InvalidJob:
    return InvalidJob(
        f"{what}: only tuning jobs of SageMaker have it, and this search is a sweep", hint=instead
    )


def _constant(kind: ParameterRange) -> Any:
    """The value of a range that has only one, so that it is not searched; None if there are several."""
    if isinstance(kind, CategoricalParameter):
        return kind.values[0] if len(kind.values) == 1 else None
    if isinstance(kind, (ContinuousParameter, IntegerParameter)) and kind.min_value == kind.max_value:
        return kind.min_value
    return None


class SweepTuningJob(TuningJob):
    """A sweep with the methods and the responses of a tuning job."""

    def __init__(self, sweep: StartedSweep) -> None:
        self.sweep = sweep
        self.name = sweep.name
        plan = sweep.trials.plan
        assert plan is not None
        self.platform = get_platform(plan.platform)

    def describe(self) -> dict[str, Any]:
        """The search in the form of a response of SageMaker's DescribeHyperParameterTuningJob."""
        trials, status = self.sweep.trials, self.sweep.status
        reason = trials.finished or ""
        if status == "Interrupted":
            status, reason = "Stopped", f"it has no controller: cloudtrain sweep continue {self.name}"
        states = Counter(_status(trial) for trial in trials.all)
        best = {"BestTrainingJob": _summary(trials.best, trials)} if trials.best else {}
        return {
            "HyperParameterTuningJobName": self.name,
            "HyperParameterTuningJobStatus": "InProgress" if status == "Running" else status,
            "CreationTime": _time(trials.created_at),
            "TrainingJobStatusCounters": {
                "Completed": states["Completed"],
                "InProgress": states["InProgress"],
                "RetryableError": 0,
                "NonRetryableError": states["Failed"],
                "Stopped": states["Stopped"],
            },
            **best,
            **({"FailureReason": reason} if status in ("Failed", "Stopped") else {}),
        }

    def stop_tuning_job(self) -> None:
        """Stop the search and its training jobs."""
        self.sweep.stop(trials=True)

    def wait(self, on_progress: Callable[[str], object] | None = None) -> SweepTuningJob:
        """Wait until the search has ended, and return the job.

        Args:
            on_progress: called with a line of text whenever a training job ends.

        Raises:
            TrainingFailed: the search ended because of a problem.
            PlatformError: the process that controls it was killed.
        """
        trials = self.sweep.wait(on_progress)
        if self.sweep.status == "Failed":
            raise TrainingFailed(self.name, FailureReport(FailureClass.PLATFORM, trials.finished or ""))
        return self

    def summaries(self) -> list[dict[str, Any]]:
        """The training jobs, in the form of SageMaker's ``TrainingJobSummaries``."""
        trials = self.sweep.trials
        return [_summary(trial, trials) for trial in trials.all]


def _summary(trial: Trial, trials: Trials) -> dict[str, Any]:
    metric = trials.plan.metric if trials.plan else ""
    value = {"MetricName": metric, "Value": trial.value}
    return {
        "TrainingJobName": trial.name,
        "TrainingJobStatus": _status(trial),
        "TunedHyperParameters": {
            name: json.dumps(one) if isinstance(one, str) else str(one)
            for name, one in trial.parameters.items()
        },
        "CreationTime": _time(trial.asked_at),
        "TrainingStartTime": _time(trial.asked_at),
        **({"TrainingEndTime": _time(trial.ended_at)} if trial.ended_at is not None else {}),
        **({"FinalHyperParameterTuningJobObjectiveMetric": value} if trial.value is not None else {}),
        **({"FailureReason": trial.why} if trial.why else {}),
    }


def _status(trial: Trial) -> str:
    if not trial.has_ended:
        return "InProgress"
    if trial.status in (PRUNED, STOPPED):
        return "Stopped"
    return "Failed" if trial.status == "Failed" else "Completed"


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def attached_sweep(job: SweepTuningJob) -> tuple[Candidate, dict[str, Any]]:
    """The estimator of a sweep with the ranges to tune, and those settings of the sweep that tuners have, too."""
    plan = job.sweep.trials.plan
    assert plan is not None
    strategies = {"grid": "Grid", "random": "Random"}
    return Candidate(
        Estimator(**{**plan.fields, "platform": plan.platform}),
        plan.metric,
        _ranges(plan.space),
        plan.fields.get("metric_definitions"),
    ), {
        "strategy": "Hyperband" if plan.pruner == "hyperband" else strategies.get(plan.sampler, "Bayesian"),
        "objective_type": plan.goal.capitalize(),
        "max_jobs": plan.trials,
        "max_parallel_jobs": plan.parallel,
        "base_tuning_job_name": base_of(job.name),
        "early_stopping_type": "Auto" if plan.pruner in ("asha", "median") else "Off",
        "random_seed": plan.seed,
    }


def _ranges(space: Space) -> dict[str, ParameterRange]:
    found: dict[str, ParameterRange] = {}
    for name, one in space.items():
        if isinstance(one, Choices):
            found[name] = CategoricalParameter([*one.values])
        else:
            kind = IntegerParameter if one.is_whole else ContinuousParameter
            found[name] = kind(one.low, one.high, "Logarithmic" if one.is_log else "Linear")
    return found
