"""The configuration of a search, with the names of the SageMaker SDK.

https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_HyperParameterTuningJobConfig.html
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from cloudtrain.errors import InvalidJob


class WarmStartTypes(Enum):
    """How a search may differ from its parents: not at all, or in its data and algorithm."""

    IDENTICAL_DATA_AND_ALGORITHM = "IdenticalDataAndAlgorithm"
    TRANSFER_LEARNING = "TransferLearning"


class WarmStartConfig:
    """Start from the results of earlier tuning jobs, ``parents``. Raises InvalidJob if there are none."""

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
    """The criteria that end a search. The first one that is met ends it."""

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
        """One of ``InstanceConfigs`` of a request."""
        return {
            "InstanceCount": self.instance_count,
            "InstanceType": self.instance_type,
            "VolumeSizeInGB": self.volume_size,
        }
