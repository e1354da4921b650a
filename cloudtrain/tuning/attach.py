"""The arguments of a tuner for a search that runs or has ended, for `HyperparameterTuner.attach`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudtrain import frameworks
from cloudtrain._sdk.attach import described_arguments
from cloudtrain.contract import decode_hyperparameters
from cloudtrain.estimator import Estimator
from cloudtrain.platforms.sagemaker.tuning import ESTIMATORS
from cloudtrain.tuning._names import base_of
from cloudtrain.tuning._request import Candidate
from cloudtrain.tuning.configuration import (
    InstanceConfig,
    StrategyConfig,
    TuningJobCompletionCriteriaConfig,
    WarmStartConfig,
)
from cloudtrain.tuning.parameters import ranges_of

Classes = type[Estimator] | Mapping[str, type[Estimator]] | None

_FRAMEWORKS = {name for name, _ in ESTIMATORS.values()} - {"Estimator"}


def attached_candidates(answer: Mapping[str, Any], session: Any, given: Classes) -> list[Candidate]:
    """The estimators of a search, and what it tunes.

    Args:
        answer: the response of DescribeHyperParameterTuningJob.
        given: the classes of the estimators, in place of the recorded ones.
    """
    config = answer["HyperParameterTuningJobConfig"]
    found = []
    for definition in answer.get("TrainingJobDefinitions") or [answer["TrainingJobDefinition"]]:
        name = definition.get("DefinitionName")
        static = definition.get("StaticHyperParameters", {})
        chosen = given.get(name or "") if isinstance(given, Mapping) else given
        kind = chosen or _recorded_class(static)
        is_framework = kind.__module__ == frameworks.__name__
        ranges = definition.get("HyperParameterRanges") or config.get("ParameterRanges", {})
        hints = {one["Name"]: one["ValueHint"] for one in ranges.get("AutoParameters", ())}
        resources = definition.get("HyperParameterTuningResourceConfig") or definition["ResourceConfig"]
        several = resources.get("InstanceConfigs", ())
        body = {
            **definition,
            "HyperParameters": {**static, **hints},
            "ResourceConfig": {**resources, **(several[0] if several else {})},
        }
        arguments = described_arguments(body, is_framework=is_framework)
        arguments["hyperparameters"] = {
            key: value
            for key, value in arguments.get("hyperparameters", {}).items()
            if key != "_tuning_objective_metric"
        }
        objective = definition.get("TuningObjective") or config["HyperParameterTuningJobObjective"]
        found.append(
            Candidate(
                kind(**arguments, platform="sagemaker", sagemaker_session=session),
                objective["MetricName"],
                ranges_of(ranges, as_json=is_framework),
                definition["AlgorithmSpecification"].get("MetricDefinitions"),
                name=name,
                is_auto=_is_auto(answer),
                instance_configs=[
                    InstanceConfig(one["InstanceCount"], one["InstanceType"], one["VolumeSizeInGB"])
                    for one in several
                ]
                or None,
            )
        )
    return found


def attached_arguments(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a tuner that do not depend on its estimators."""
    config = answer["HyperParameterTuningJobConfig"]
    limits = config.get("ResourceLimits", {})
    definition = (answer.get("TrainingJobDefinitions") or [answer.get("TrainingJobDefinition", {})])[0]
    objective = definition.get("TuningObjective") or config["HyperParameterTuningJobObjective"]
    return {
        "strategy": config["Strategy"],
        "objective_type": objective["Type"],
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
        "autotune": _is_auto(answer),
    }


def _is_auto(answer: Mapping[str, Any]) -> bool:
    return bool(answer.get("Autotune", {}).get("Mode") == "Enabled")


def _recorded_class(static: Mapping[str, str]) -> type[Estimator]:
    """The class that the hyperparameters name, if it is one for a framework."""
    name = decode_hyperparameters(static).get("sagemaker_estimator_class_name")
    return getattr(frameworks, name) if name in _FRAMEWORKS else Estimator
