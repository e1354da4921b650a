"""The training jobs of a tuning job, as a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from cloudtrain.errors import CloudtrainError


class TuningJobAnalytics:
    """What each training job had for hyperparameters, and what came of it, asked anew each time."""

    def __init__(self, summaries: Callable[[], list[dict[str, Any]]]) -> None:
        self._summaries = summaries

    def training_job_summaries(self) -> list[dict[str, Any]]:
        """As SageMaker tells them."""
        return self._summaries()

    def rows(self) -> list[dict[str, Any]]:
        """A dict for each training job, with the columns of the SageMaker SDK."""
        return [training_job_row(summary) for summary in self._summaries()]

    def dataframe(self) -> Any:
        """The rows as a ``pandas.DataFrame``. Raises CloudtrainError where there is no pandas."""
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise CloudtrainError(
                "a dataframe needs pandas", hint="pip install pandas; or use rows(), which needs nothing."
            ) from None
        return pandas.DataFrame(self.rows())


def training_job_row(summary: Mapping[str, Any]) -> dict[str, Any]:
    """One of ``TrainingJobSummaries`` as a row: hyperparameters, then how the job did. Times are datetimes."""
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
    """The hyperparameters that the search chose: numbers as numbers, all else as the script got it."""
    return {name: _decode(text) for name, text in summary.get("TunedHyperParameters", {}).items()}


def _decode(text: str) -> Any:
    """A categorical value of a framework's image is a string in JSON, one of another image the string itself."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    if text.startswith('"'):
        with suppress(ValueError):
            return json.loads(text)
    return text
