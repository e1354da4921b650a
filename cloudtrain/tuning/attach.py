"""The arguments of a tuner for a search that runs or has ended, for `HyperparameterTuner.attach`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudtrain import frameworks
from cloudtrain._sdk.attach import described_arguments
from cloudtrain.contract import decode_hyperparameters
from cloudtrain.estimator import Estimator
from cloudtrain.platforms.sagemaker.tuning import ESTIMATORS
from cloudtrain.tuning._request import Candidate, base_of
from cloudtrain.tuning.configuration import (
    InstanceConfig,
    StrategyConfig,
    TuningJobCompletionCriteriaConfig,
    WarmStartConfig,
)
from cloudtrain.tuning.parameters import ranges_of

Classes = type[Estimator] | Mapping[str, type[Estimator]] | None

_FRAMEWORKS = {name for name, _ in ESTIMATORS.values()} - {"Estimator"}


def attached_search(
    answer: Mapping[str, Any], session: Any, given: Classes
) -> tuple[list[Candidate], dict[str, Any]]:
    """The estimators of a search with what it tunes, and the arguments of a tuner that do not depend on them.

    Args:
        answer: the response of DescribeHyperParameterTuningJob.
        given: the classes of the estimators, in place of the recorded ones.
    """
    config = answer["HyperParameterTuningJobConfig"]
    limits = config.get("ResourceLimits", {})
    is_auto = bool(answer.get("Autotune", {}).get("Mode") == "Enabled")
    definitions = [
        {
            "TuningObjective": config.get("HyperParameterTuningJobObjective"),
            "HyperParameterRanges": config.get("ParameterRanges", {}),
            **one,
        }
        for one in answer.get("TrainingJobDefinitions") or [answer["TrainingJobDefinition"]]
    ]
    return [_candidate(one, session, given, is_auto) for one in definitions], {
        "strategy": config["Strategy"],
        "objective_type": definitions[0]["TuningObjective"]["Type"],
        "max_jobs": limits.get("MaxNumberOfTrainingJobs"),
        "max_parallel_jobs": limits.get("MaxParallelTrainingJobs", 1),
        "max_runtime_in_seconds": limits.get("MaxRuntimeInSeconds"),
        "base_tuning_job_name": base_of(answer["HyperParameterTuningJobName"]),
        "warm_start_config": WarmStartConfig.from_job_desc(answer.get("WarmStartConfig")),
        "strategy_config": StrategyConfig.from_job_desc(config.get("StrategyConfig")),
        "completion_criteria_config": TuningJobCompletionCriteriaConfig.from_job_desc(
            config.get("TuningJobCompletionCriteria")
        ),
        "early_stopping_type": config.get("TrainingJobEarlyStoppingType", "Off"),
        "random_seed": config.get("RandomSeed"),
        "autotune": is_auto,
    }


def _candidate(definition: Mapping[str, Any], session: Any, given: Classes, is_auto: bool) -> Candidate:
    name, static = definition.get("DefinitionName"), definition.get("StaticHyperParameters", {})
    chosen = given.get(name or "") if isinstance(given, Mapping) else given
    kind = chosen or _recorded_class(static)
    is_framework = kind.__module__ == frameworks.__name__
    ranges = definition["HyperParameterRanges"]
    hints = {one["Name"]: one["ValueHint"] for one in ranges.get("AutoParameters", ())}
    resources = definition.get("HyperParameterTuningResourceConfig") or definition["ResourceConfig"]
    several = resources.get("InstanceConfigs", ())
    body = {
        **definition,
        "HyperParameters": {**static, **hints},
        "ResourceConfig": {**resources, **(several[0] if several else {})},
    }
    arguments = described_arguments(body, is_framework=is_framework)
    arguments.get("hyperparameters", {}).pop("_tuning_objective_metric", None)
    configs = [
        InstanceConfig(one["InstanceCount"], one["InstanceType"], one["VolumeSizeInGB"]) for one in several
    ]
    return Candidate(
        kind(**arguments, platform="sagemaker", sagemaker_session=session),
        definition["TuningObjective"]["MetricName"],
        ranges_of(ranges, as_json=is_framework),
        definition["AlgorithmSpecification"].get("MetricDefinitions"),
        name=name,
        is_auto=is_auto,
        instance_configs=configs or None,
    )


def _recorded_class(static: Mapping[str, str]) -> type[Estimator]:
    """The class that the hyperparameters name, if it is one for a framework."""
    name = decode_hyperparameters(static).get("sagemaker_estimator_class_name")
    return getattr(frameworks, name) if name in _FRAMEWORKS else Estimator
