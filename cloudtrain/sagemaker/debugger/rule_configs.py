"""As `sagemaker.debugger.rule_configs` of the SDK: AWS's rules, each a function that returns its configuration."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

_EACH_500 = {"save_interval": "500"}
_EACH_5 = {"save_interval": "5"}

_DEBUGGER_RULES: dict[str, dict[str, dict[str, str]]] = {
    "AllZero": {},
    "CheckInputImages": {"input_image": {"include_regex": ".*hybridsequential0_input_0", **_EACH_500}},
    "ClassImbalance": {},
    "Confusion": {},
    "CreateXgboostReport": {
        "metrics": _EACH_5,
        "feature_importance": _EACH_5,
        "hyperparameters": {"save_steps": "0"},
        "predictions": _EACH_5,
        "labels": _EACH_5,
    },
    "DeadRelu": {"relu_output": {"include_regex": ".*relu_output", **_EACH_500}},
    "ExplodingTensor": {},
    "FeatureImportanceOverweight": {"feature_importance": _EACH_500},
    "LossNotDecreasing": {"losses": _EACH_500},
    "NLPSequenceRatio": {"input_sequence": {"include_regex": ".*embedding0_input_0", **_EACH_500}},
    "Overfit": {},
    "Overtraining": {},
    "PoorWeightInitialization": {"relu_input": {"include_regex": ".*relu_input", **_EACH_500}},
    "SaturatedActivation": {},
    "SimilarAcrossRuns": {},
    "StalledTrainingRule": {},
    "TensorVariance": {},
    "TreeDepth": {},
    "UnchangedTensor": {},
    "VanishingGradient": {"gradients": _EACH_500},
    "WeightUpdateRatio": {"weights": _EACH_500},
}
"""The rules about tensors, and the collections that each needs."""

_PROFILER_RULES: dict[str, dict[str, Any]] = {
    "BatchSize": {
        **dict.fromkeys(("cpu_threshold_p95", "gpu_threshold_p95", "gpu_memory_threshold_p95"), 70),
        "patience": 1000,
        "window": 500,
    },
    "CPUBottleneck": {"threshold": 50, "gpu_threshold": 10, "cpu_threshold": 90, "patience": 1000},
    "Dataloader": {"min_threshold": 70, "max_threshold": 200},
    "GPUMemoryIncrease": {"increase": 5, "patience": 1000, "window": 10},
    "IOBottleneck": {"threshold": 50, "gpu_threshold": 10, "io_threshold": 50, "patience": 1000},
    "LoadBalancing": {"threshold": 0.5, "patience": 1000},
    "LowGPUUtilization": {"threshold_p95": 70, "threshold_p5": 10, "window": 500, "patience": 1000},
    "MaxInitializationTime": {"threshold": 20},
    "OverallSystemUsage": {},
    "StepOutlier": {"stddev": 3, "mode": None, "n_outliers": 10},
}
"""The rules about the profiler's metrics, and the defaults of their parameters."""

_SCAN = {"scan_interval_us": 60_000_000}
"""A parameter that all rules about the profiler's metrics have."""


class ProfilerRuleConfig:
    """The configuration of a rule about the profiler's metrics: ``rule_name`` and ``rule_parameters``."""

    def __init__(self, rule_name: str, defaults: dict[str, Any] | None, **parameters: Any) -> None:
        """Raises TypeError for a parameter that is not in ``defaults``; None accepts all."""
        if defaults is not None and (unknown := parameters.keys() - defaults):
            raise TypeError(
                f"{rule_name} has no parameter {min(unknown)!r}; it has {', '.join(sorted(defaults))}"
            )
        self.rule_name = rule_name
        self.rule_parameters = {**(defaults or {}), **parameters, "rule_to_invoke": rule_name}


def ActionList(*actions: dict[str, str]) -> list[dict[str, str]]:  # the SDK's class names, also below
    """The ``actions`` of a rule: what happens when it fires."""
    return list(actions)


def StopTraining(training_job_prefix: str | None = None) -> dict[str, str]:
    """Stop the jobs whose names have the prefix; by default, the rule's own job."""
    prefix = {"training_job_prefix": training_job_prefix} if training_job_prefix else {}
    return {**prefix, "name": "stoptraining"}


def Email(email_address: str) -> dict[str, str]:
    """Send a message through an SNS topic."""
    return {"endpoint": email_address, "name": "email"}


def SMS(phone_number: str) -> dict[str, str]:
    """Send a message through an SNS topic. The number begins with ``+``."""
    return {"endpoint": phone_number, "name": "sms"}


def get_collection(collection_name: str) -> dict[str, Any] | None:
    """A collection that AWS's rules need, in the form of the API; None for another name."""
    for collections in _DEBUGGER_RULES.values():
        if collection_name in collections:
            return _collection(collection_name, collections[collection_name])
    return None


def _collection(name: str, parameters: dict[str, str]) -> dict[str, Any]:
    return {"CollectionName": name, "CollectionParameters": dict(parameters)}


def _debugger_rule(name: str) -> dict[str, Any]:
    rule = {"RuleConfigurationName": name, "RuleParameters": {"rule_to_invoke": name}}
    collections = [_collection(one, parameters) for one, parameters in _DEBUGGER_RULES[name].items()]
    return {
        "DebugRuleConfiguration": rule,
        **({"CollectionConfigurations": collections} if collections else {}),
    }


def _function_name(rule: str) -> str:
    """``check_input_images`` for ``CheckInputImages``."""
    rule = rule.replace("NLP", "Nlp")
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in rule).lstrip("_")


def _functions() -> dict[str, Callable[..., Any]]:
    debugger = {_function_name(name): partial(_debugger_rule, name) for name in _DEBUGGER_RULES}
    profiler = {
        name: partial(ProfilerRuleConfig, name, {**defaults, **_SCAN})
        for name, defaults in _PROFILER_RULES.items()
    }
    return {**debugger, **profiler, "ProfilerReport": partial(ProfilerRuleConfig, "ProfilerReport", None)}


_FUNCTIONS = _functions()


def __getattr__(name: str) -> Any:
    try:
        return _FUNCTIONS[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted([*_FUNCTIONS, "ActionList", "Email", "SMS", "StopTraining", "get_collection"])
