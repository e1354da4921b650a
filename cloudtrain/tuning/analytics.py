"""The training jobs of a tuning job as a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from cloudtrain.training_analytics import to_dataframe


class TuningJobAnalytics:
    """The hyperparameters and the result of each training job. Every call queries SageMaker again."""

    def __init__(self, summaries: Callable[[], list[dict[str, Any]]]) -> None:
        self._summaries = summaries

    def training_job_summaries(self) -> list[dict[str, Any]]:
        """The ``TrainingJobSummaries`` that SageMaker returns."""
        return self._summaries()

    def rows(self) -> list[dict[str, Any]]:
        """One dict per training job, with the columns of the SageMaker SDK."""
        return [training_job_row(summary) for summary in self._summaries()]

    def dataframe(self) -> Any:
        """The rows as a ``pandas.DataFrame``. Raises CloudtrainError if pandas is not installed."""
        return to_dataframe(self.rows())


def training_job_row(summary: Mapping[str, Any]) -> dict[str, Any]:
    """One of ``TrainingJobSummaries`` as a row: the hyperparameters, then the result. Times are datetimes."""
    start, end = summary.get("TrainingStartTime"), summary.get("TrainingEndTime")
    row = {
        **tuned_values(summary),
        "TrainingJobName": summary["TrainingJobName"],
        "TrainingJobStatus": summary["TrainingJobStatus"],
        "FinalObjectiveValue": summary.get("FinalHyperParameterTuningJobObjectiveMetric", {}).get("Value"),
        "TrainingStartTime": start,
        "TrainingEndTime": end,
    }
    if start and end:
        row["TrainingElapsedTimeSeconds"] = (end - start).total_seconds()
    if "TrainingJobDefinitionName" in summary:
        row["TrainingJobDefinitionName"] = summary["TrainingJobDefinitionName"]
    return row


def tuned_values(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters that the search chose. Numbers are parsed; other values are as the script received them."""
    return {name: _decode(text) for name, text in summary.get("TunedHyperParameters", {}).items()}


def _decode(text: str) -> Any:
    """The value of a hyperparameter. For the image of a framework, categorical values are encoded as JSON strings."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    if text.startswith('"'):
        with suppress(ValueError):
            return json.loads(text)
    return text
