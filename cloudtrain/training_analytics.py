"""`TrainingJobAnalytics`: the metrics of a job over time, as a table with the columns of the SageMaker SDK."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from cloudtrain.errors import CloudtrainError, PlatformError
from cloudtrain.job import Job, find_any
from cloudtrain.platforms import Metrics
from cloudtrain.platforms.base import Series

COLUMNS = ("timestamp", "metric_name", "value")


class TrainingJobAnalytics:
    """The metrics of one job. The platform is queried once, and again after `clear_cache`.

    Args:
        training_job_name: a job of any platform that was submitted from this machine, or a SageMaker training job.
        metric_names: the metrics to read; defaults to all of the job's ``metric_definitions``.
        sagemaker_session: the AWS session of a SageMaker training job.
        start_time: leave out values before this time.
        end_time: leave out values after this time.
        period: on SageMaker only, the number of seconds that each value is averaged over; a multiple of 60.

    Raises:
        JobNotFound: there is no such job.
        PlatformError: its platform has no metrics, or AWS denies access.
    """

    def __init__(
        self,
        training_job_name: str,
        metric_names: Sequence[str] | None = None,
        sagemaker_session: Any = None,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        period: int | None = None,
    ) -> None:
        self._set(find_any(training_job_name, sagemaker_session), metric_names, start_time, end_time, period)

    @classmethod
    def of(cls, job: Job) -> TrainingJobAnalytics:
        """The metrics of ``job``. Raises as the constructor does."""
        self = cls.__new__(cls)
        self._set(job)
        return self

    def _set(
        self,
        job: Job,
        names: Sequence[str] | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        period: int | None = None,
    ) -> None:
        if not isinstance(job.platform, Metrics):
            raise PlatformError(f"the platform {job.platform.name} has no metrics over time")
        self._job, self._names, self._start, self._end, self._period = job, names, start, end, period
        self._series: Series | None = None

    @property
    def name(self) -> str:
        """The name of the job."""
        return self._job.name

    def clear_cache(self) -> None:
        """Query the platform again when values are needed."""
        self._series = None

    def rows(self, force_refresh: bool = False) -> list[dict[str, Any]]:
        """One dict per value: ``timestamp`` in seconds since the metric's first value, ``metric_name``, ``value``."""
        if self._series is None or force_refresh:
            self._series = self._read()
        rows = []
        for name in self._names or self._series:
            points = self._series.get(name, ())
            if not points:
                warnings.warn(f"job {self.name} has no values of the metric {name}", stacklevel=3)
            first = points[0].time if points else 0.0
            rows += [
                dict(zip(COLUMNS, (point.time - first, name, point.value), strict=True)) for point in points
            ]
        return rows

    def dataframe(self, force_refresh: bool = False) -> Any:
        """The `rows` as a ``pandas.DataFrame``. Raises CloudtrainError if pandas is not installed."""
        return to_dataframe(self.rows(force_refresh), columns=list(COLUMNS))

    def export_csv(self, filename: str | Path) -> None:
        """Write the `rows` to a CSV file, with the columns' names first."""
        import csv

        with open(filename, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(self.rows())

    def _read(self) -> Series:
        platform = self._job.platform
        assert isinstance(platform, Metrics)
        from cloudtrain.platforms.sagemaker import SageMakerPlatform
        from cloudtrain.platforms.sagemaker.metrics import Interval, metrics

        if isinstance(platform, SageMakerPlatform):
            interval = Interval(self._start, self._end, self._period)
            return metrics(self.name, platform.aws, self._names, interval)
        if self._period is not None:
            raise PlatformError(
                f"period: the platform {platform.name} keeps every value", hint="Leave period out."
            )
        start = self._start.timestamp() if self._start else float("-inf")
        end = self._end.timestamp() if self._end else float("inf")
        return {
            name: [point for point in points if start <= point.time <= end]
            for name, points in platform.metrics(self.name).items()
        }

    def __repr__(self) -> str:
        return f"<TrainingJobAnalytics for {self.name}>"


def to_dataframe(rows: list[dict[str, Any]], columns: list[str] | None = None) -> Any:
    """A ``pandas.DataFrame``. Raises CloudtrainError if pandas is not installed."""
    try:
        pandas = import_module("pandas")
    except ImportError:
        raise CloudtrainError(
            "dataframe() needs pandas", hint="Run pip install pandas, or use rows() instead."
        ) from None
    return pandas.DataFrame(rows, columns=columns)
