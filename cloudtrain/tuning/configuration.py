"""The ranges of hyperparameters and the configuration of a search, with the names of the SageMaker SDK.

https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_HyperParameterTuningJobConfig.html
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from cloudtrain.errors import InvalidJob, nearest


class WarmStartTypes(Enum):
    """How a search may differ from its parents: not at all, or in its data and algorithm."""

    IDENTICAL_DATA_AND_ALGORITHM = "IdenticalDataAndAlgorithm"
    TRANSFER_LEARNING = "TransferLearning"


class WarmStartConfig:
    """A start from the results of earlier tuning jobs, ``parents``. Raises InvalidJob if there are none."""

    def __init__(self, warm_start_type: WarmStartTypes | str, parents: Iterable[str]) -> None:
        try:
            self.type = WarmStartTypes(warm_start_type)
        except ValueError:
            known = " or ".join(f"WarmStartTypes.{kind.name}" for kind in WarmStartTypes)
            raise InvalidJob(f"warm_start_type: {warm_start_type!r} is unknown", hint=f"{known}.") from None
        self.parents = {parents} if isinstance(parents, str) else set(parents or ())
        if not self.parents:
            raise InvalidJob("parents: a warm start needs at least one earlier tuning job")

    @classmethod
    def from_job_desc(cls, fields: dict[str, Any] | None) -> WarmStartConfig | None:
        """The inverse of `to_input_req`; None for None."""
        if not fields:
            return None
        parents = fields["ParentHyperParameterTuningJobs"]
        return cls(fields["WarmStartType"], {parent["HyperParameterTuningJobName"] for parent in parents})

    def to_input_req(self) -> dict[str, Any]:
        """``WarmStartConfig`` of a request."""
        return {
            "WarmStartType": self.type.value,
            "ParentHyperParameterTuningJobs": [
                {"HyperParameterTuningJobName": parent} for parent in sorted(self.parents)
            ],
        }


@dataclass(frozen=True)
class HyperbandStrategyConfig:
    """The maximum and minimum number of epochs of a training job, for the strategy ``Hyperband``."""

    max_resource: int
    min_resource: int

    def to_input_req(self) -> dict[str, Any]:
        return {"MinResource": self.min_resource, "MaxResource": self.max_resource}


@dataclass(frozen=True)
class StrategyConfig:
    """The options of a strategy. Only ``Hyperband`` has options."""

    hyperband_strategy_config: HyperbandStrategyConfig

    @classmethod
    def from_job_desc(cls, fields: dict[str, Any] | None) -> StrategyConfig | None:
        """The inverse of `to_input_req`; None for None."""
        if not fields:
            return None
        found = fields["HyperbandStrategyConfig"]
        return cls(HyperbandStrategyConfig(found["MaxResource"], found["MinResource"]))

    def to_input_req(self) -> dict[str, Any]:
        return {"HyperbandStrategyConfig": self.hyperband_strategy_config.to_input_req()}


@dataclass(frozen=True)
class TuningJobCompletionCriteriaConfig:
    """The criteria that end a search. It ends when the first one is met."""

    max_number_of_training_jobs_not_improving: int | None = None
    complete_on_convergence: bool | None = None
    target_objective_metric_value: float | None = None

    @classmethod
    def from_job_desc(cls, fields: dict[str, Any] | None) -> TuningJobCompletionCriteriaConfig | None:
        """The inverse of `to_input_req`; None for None."""
        if not fields:
            return None
        mode = fields.get("ConvergenceDetected", {}).get("CompleteOnConvergence")
        return cls(
            fields.get("BestObjectiveNotImproving", {}).get("MaxNumberOfTrainingJobsNotImproving"),
            mode and mode == "Enabled",
            fields.get("TargetObjectiveMetricValue"),
        )

    def to_input_req(self) -> dict[str, Any]:
        """``TuningJobCompletionCriteria`` of a request."""
        fields: dict[str, Any] = {}
        if self.max_number_of_training_jobs_not_improving is not None:
            most = self.max_number_of_training_jobs_not_improving
            fields["BestObjectiveNotImproving"] = {"MaxNumberOfTrainingJobsNotImproving": most}
        if self.target_objective_metric_value is not None:
            fields["TargetObjectiveMetricValue"] = self.target_objective_metric_value
        if self.complete_on_convergence is not None:
            mode = "Enabled" if self.complete_on_convergence else "Disabled"
            fields["ConvergenceDetected"] = {"CompleteOnConvergence": mode}
        return fields


@dataclass(frozen=True)
class InstanceConfig:
    """A kind of instances for training jobs. Of several kinds, SageMaker uses the first that is available."""

    instance_count: int
    instance_type: str
    volume_size: int = 30

    def to_input_req(self) -> dict[str, Any]:
        """One element of ``InstanceConfigs`` in a request."""
        return {
            "InstanceCount": self.instance_count,
            "InstanceType": self.instance_type,
            "VolumeSizeInGB": self.volume_size,
        }


SCALING_TYPES = ("Auto", "Linear", "Logarithmic", "ReverseLogarithmic")


class ParameterRange:
    """The base class of the three kinds of ranges."""

    kind: ClassVar[str]
    """``Continuous``, ``Categorical`` or ``Integer``: the start of the field's name in a request."""

    def as_tuning_range(self, name: str, *, as_json: bool = False) -> dict[str, Any]:
        """The range in the format of CreateHyperParameterTuningJob.

        Args:
            name: the name of the hyperparameter.
            as_json: whether to encode values as JSON, for containers that decode them.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class _Numbers(ParameterRange):
    min_value: float
    max_value: float
    scaling_type: str = "Auto"

    def __post_init__(self) -> None:
        where = f"{type(self).__name__}({self.min_value!r}, {self.max_value!r})"
        if not _is_number(self.min_value) or not _is_number(self.max_value):
            raise InvalidJob(f"{where}: min_value and max_value must be numbers")
        if not self.min_value <= self.max_value:
            raise InvalidJob(f"{where}: min_value is greater than max_value")
        if self.scaling_type not in SCALING_TYPES:
            raise InvalidJob(
                f"{where}: unknown scaling_type {self.scaling_type!r}",
                hint=nearest(str(self.scaling_type), SCALING_TYPES),
            )

    def as_tuning_range(self, name: str, *, as_json: bool = False) -> dict[str, Any]:
        return {
            "Name": name,
            "MinValue": str(self.min_value),
            "MaxValue": str(self.max_value),
            "ScalingType": self.scaling_type,
        }


@dataclass(frozen=True)
class ContinuousParameter(_Numbers):
    """A number from ``min_value`` to ``max_value``.

    ``scaling_type`` is the scale of the search: ``Auto``, ``Linear``, ``Logarithmic`` or ``ReverseLogarithmic``.
    Raises InvalidJob if a bound is not a number, or ``min_value`` is greater than ``max_value``.
    """

    kind = "Continuous"


@dataclass(frozen=True)
class IntegerParameter(_Numbers):
    """An integer from ``min_value`` to ``max_value``, inclusive. Otherwise like `ContinuousParameter`."""

    kind = "Integer"

    def __post_init__(self) -> None:
        super().__post_init__()
        if int(self.min_value) != self.min_value or int(self.max_value) != self.max_value:
            raise InvalidJob(f"IntegerParameter({self.min_value!r}, {self.max_value!r}): not integers")


class CategoricalParameter(ParameterRange):
    """One of ``values``, which is a list or a single value. Raises InvalidJob if it is empty."""

    kind = "Categorical"

    def __init__(self, values: Any) -> None:
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        if not values:
            raise InvalidJob("CategoricalParameter: values is empty")
        self.values = [_text(value) for value in values]

    def as_tuning_range(self, name: str, *, as_json: bool = False) -> dict[str, Any]:
        return {
            "Name": name,
            "Values": [json.dumps(text) for text in self.values] if as_json else self.values,
        }

    def __repr__(self) -> str:
        return f"CategoricalParameter({self.values!r})"


def range_fields(ranges: Mapping[str, ParameterRange], *, as_json: bool) -> dict[str, Any]:
    """``ParameterRanges`` of a request: all three kinds, each in the order of ``ranges``."""
    return {
        f"{kind.kind}ParameterRanges": [
            parameter.as_tuning_range(name, as_json=as_json)
            for name, parameter in ranges.items()
            if isinstance(parameter, kind)
        ]
        for kind in (ContinuousParameter, CategoricalParameter, IntegerParameter)
    }


def ranges_of(fields: Mapping[str, Any], *, as_json: bool) -> dict[str, ParameterRange]:
    """The inverse of `range_fields`."""
    found: dict[str, ParameterRange] = {}
    for kind, number in ((ContinuousParameter, float), (IntegerParameter, int)):
        for one in fields.get(f"{kind.kind}ParameterRanges", ()):
            low, high = number(one["MinValue"]), number(one["MaxValue"])
            found[one["Name"]] = kind(low, high, one.get("ScalingType", "Auto"))
    for one in fields.get("CategoricalParameterRanges", ()):
        found[one["Name"]] = CategoricalParameter(
            [json.loads(text) for text in one["Values"]] if as_json else one["Values"]
        )
    return found


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, (bool, str)) and float(value) == float(value)
    except (TypeError, ValueError):
        return False


def _text(value: Any) -> str:
    """A value as a command-line argument of the script; lists and dicts are JSON."""
    return json.dumps(value) if isinstance(value, (list, dict)) else str(value)
