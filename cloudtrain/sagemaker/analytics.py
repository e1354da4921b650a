"""As `sagemaker.analytics` of the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudtrain.sagemaker._elsewhere import others
from cloudtrain.training_analytics import TrainingJobAnalytics
from cloudtrain.tuning import TuningJob, TuningJobAnalytics


class HyperparameterTuningJobAnalytics(TuningJobAnalytics):
    """The training jobs of a tuning job as a table. Every call queries SageMaker again.

    Raises:
        JobNotFound: there is no such tuning job.
    """

    def __init__(self, hyperparameter_tuning_job_name: str, sagemaker_session: Any = None) -> None:
        self._job = TuningJob.attach(hyperparameter_tuning_job_name, sagemaker_session)
        super().__init__(self._job.analytics().training_job_summaries)

    @property
    def name(self) -> str:
        """The name of the tuning job."""
        return self._job.name

    def description(self, force_refresh: bool = False) -> dict[str, Any]:
        """SageMaker's response to DescribeHyperParameterTuningJob."""
        return self._job.describe()

    @property
    def tuning_ranges(self) -> dict[str, Any]:
        """The range of each hyperparameter, as SageMaker describes it, for each definition if the job has several."""
        answer = self.description()
        if "TrainingJobDefinitions" in answer:
            return {
                one["DefinitionName"]: _ranges(one["HyperParameterRanges"])
                for one in answer["TrainingJobDefinitions"]
            }
        return _ranges(answer["HyperParameterTuningJobConfig"].get("ParameterRanges", {}))

    def clear_cache(self) -> None:
        """Does nothing: there is no cache."""


def _ranges(ranges: Mapping[str, Any]) -> dict[str, Any]:
    kinds = ("IntegerParameterRanges", "ContinuousParameterRanges", "CategoricalParameterRanges")
    return {one["Name"]: one for kind in kinds for one in ranges.get(kind, ())}


__getattr__ = others(__name__)

__all__ = ["HyperparameterTuningJobAnalytics", "TrainingJobAnalytics"]
