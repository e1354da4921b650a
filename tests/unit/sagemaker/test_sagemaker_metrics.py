"""The question for a job's metrics over time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from described_answers import answer, at

from cloudtrain.platforms.sagemaker.metrics import MOST_POINTS, metric_names, metric_query

RUN = ("Starting", 0), ("Training", 60)


def test_metrics_are_those_looked_for_and_those_found() -> None:
    response = answer(
        "InProgress",
        *RUN,
        AlgorithmSpecification={
            "MetricDefinitions": [{"Name": "loss", "Regex": "x"}, {"Name": "acc", "Regex": "y"}]
        },
        FinalMetricDataList=[{"MetricName": "loss", "Value": 1.0}, {"MetricName": "other", "Value": 2.0}],
    )
    assert metric_names(response) == ["loss", "acc", "other"]
    assert metric_names(answer("InProgress", *RUN)) == []


@pytest.mark.parametrize(("hours", "minutes"), [(1, 1), (23, 1), (48, 3), (24 * 28, 29)])
def test_a_long_job_has_longer_intervals(hours: int, minutes: int) -> None:
    response = answer("InProgress", *RUN, TrainingStartTime=at(60))
    query = metric_query(["a b", "c"], response, at(3600 * hours))
    stats = [one["MetricStat"] for one in query["MetricDataQueries"]]
    assert [stat["Period"] for stat in stats] == [60 * minutes] * 2
    assert (query["EndTime"] - query["StartTime"]) / timedelta(minutes=minutes) <= MOST_POINTS
    assert stats[0]["Metric"]["MetricName"] == "a b"
    assert stats[0]["Metric"]["Dimensions"] == [{"Name": "TrainingJobName", "Value": "a-job"}]
