"""The metrics of a job over time, which SageMaker extracts from its output and stores in CloudWatch.

https://docs.aws.amazon.com/sagemaker/latest/dg/training-metrics.html
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors
from cloudtrain.errors import InvalidJob
from cloudtrain.observe.metric_series import Point
from cloudtrain.platforms.base import Series
from cloudtrain.platforms.sagemaker.training_job import describe_training_job

NAMESPACE = "/aws/sagemaker/TrainingJobs"
MINUTE = 60
MOST_POINTS = 1440
"""The maximum number of points of a metric. Longer jobs have longer intervals."""


@dataclass(frozen=True)
class Interval:
    """A part of a job's duration. ``period`` is in seconds, a multiple of 60. Each value is the average over one."""

    start: datetime | None = None
    end: datetime | None = None
    period: int | None = None


WHOLE = Interval()
"""The whole duration of the job, with periods of a minute, or longer ones for jobs of more than a day."""


def metrics(
    job_name: str, aws: Aws, names: Sequence[str] | None = None, interval: Interval = WHOLE
) -> Series:
    """The average of each metric of ``metric_definitions`` for each period with values.

    Args:
        names: the metrics; defaults to all of the job.
        interval: the part of the job's duration to read.

    Raises:
        JobNotFound: there is no such job.
        PlatformError: CloudWatch denies access.
    """
    answer = describe_training_job(job_name, aws)
    names = list(names or metric_names(answer))
    if not names:
        return {}
    found: defaultdict[str, list[Point]] = defaultdict(list)
    with aws_errors(f"the metrics of job {job_name}"):
        pages = aws.client("cloudwatch").get_paginator("get_metric_data")
        for page in pages.paginate(**metric_query(names, answer, datetime.now(timezone.utc), interval)):
            for result in page["MetricDataResults"]:
                moments = (moment.timestamp() for moment in result["Timestamps"])
                found[names[int(result["Id"][1:])]] += map(Point, moments, result["Values"])
    return {name: sorted(found[name]) for name in names if found[name]}


def metric_names(answer: Mapping[str, Any]) -> list[str]:
    """The metrics in a response of DescribeTrainingJob: those that it defines, and those with final values."""
    wanted = answer.get("AlgorithmSpecification", {}).get("MetricDefinitions", ())
    found = answer.get("FinalMetricDataList", ())
    return list(dict.fromkeys([one["Name"] for one in wanted] + [one["MetricName"] for one in found]))


def metric_query(
    names: list[str], answer: Mapping[str, Any], now: datetime, interval: Interval = WHOLE
) -> dict[str, Any]:
    """The parameters of GetMetricData for a part of the duration of the job."""
    started = answer.get("TrainingStartTime", answer["CreationTime"]).replace(second=0, microsecond=0)
    start = interval.start or started
    end = interval.end or answer.get("TrainingEndTime", now) + timedelta(seconds=2 * MINUTE)
    minutes = (end - start).total_seconds() / MINUTE
    period = interval.period or MINUTE * max(1, math.ceil(minutes / MOST_POINTS))
    dimensions = [{"Name": "TrainingJobName", "Value": answer["TrainingJobName"]}]
    return {
        "MetricDataQueries": [
            {
                "Id": f"m{number}",
                "MetricStat": {
                    "Metric": {"Namespace": NAMESPACE, "MetricName": name, "Dimensions": dimensions},
                    "Period": period,
                    "Stat": "Average",
                },
            }
            for number, name in enumerate(names)
        ],
        "StartTime": start,
        "EndTime": end,
        "ScanBy": "TimestampAscending",
    }


LONGEST = 500
"""In characters: the limit of an expression (CreateTrainingJob, ``MetricDefinition``)."""

_PREFIX = r"\[rank\s{digits}\]\s"
"""It has no literal blank, which ``(?x)`` would ignore."""

_TAKES_PREFIX = "(?:" + _PREFIX.format(digits=r"\d+") + ")?"

_MOST_DIGITS = 5
"""The most digits of a rank's number. In many dialects a lookbehind has a fixed length, so each number has its own."""

_TOKEN = re.compile(
    r"\\A|\\.|\^"
    r"|\[\^?\]?(?:\\.|[^\]\\])*\]"  # a set of characters
    r"|\(\?\#[^)]*\)"  # a comment
    r"|\((?:\?(?:P<\w+>|P=\w+|<?[=!]|[:>]|[a-zA-Z-]+:?))?"  # the start of a group
    r"|\)",
    re.DOTALL,
)
_TOKEN_VERBOSE = re.compile(rf"\#[^\n]*|{_TOKEN.pattern}", re.DOTALL)


def after_prefixes(definitions: list[dict[str, str]]) -> list[dict[str, str]]:
    """Metric definitions that match lines with the runtime's prefix as ``definitions`` match the ranks' own lines.

    Raises:
        InvalidJob: an expression becomes too long for SageMaker.
    """
    return [
        {**one, "Regex": _checked(number, one["Regex"], after_prefix(one["Regex"]))}
        for number, one in enumerate(definitions)
    ]


def after_prefix(regex: str) -> str:
    r"""A regular expression whose ``^`` and ``\A`` also match behind ``[rank N]``; group 1 captures the same text.

    >>> after_prefix("^loss=(.*)")
    '^(?:\\[rank\\s\\d+\\]\\s)?loss=(.*)'
    >>> after_prefix("[^a]loss=(.*)")
    '[^a]loss=(.*)'
    """
    parts, end = [], 0
    for anchor, is_enclosed in _anchors(regex):
        # in a lookaround or in a captured group, the anchor must not consume the prefix
        replacement = _without_width(anchor[0]) if is_enclosed else anchor[0] + _TAKES_PREFIX
        parts += [regex[end : anchor.start()], replacement]
        end = anchor.end()
    return "".join(parts) + regex[end:]


def _anchors(regex: str) -> Iterator[tuple[re.Match[str], bool]]:
    """Each anchor, and whether it is in a lookaround or in a captured group."""
    is_verbose = re.compile(regex).flags & re.VERBOSE
    enclosing: list[bool] = []
    for token in (_TOKEN_VERBOSE if is_verbose else _TOKEN).finditer(regex):
        text = token[0]
        if text in ("^", r"\A"):
            yield token, any(enclosing)
        elif text == ")":
            enclosing.pop()
        elif text.startswith("(") and not text.startswith("(?#"):
            enclosing.append(text == "(" or text.endswith(("=", "!")) or text.startswith("(?P<"))


def _without_width(anchor: str) -> str:
    behind = (_PREFIX.format(digits=r"\d" * digits) for digits in range(1, _MOST_DIGITS + 1))
    return f"(?:{anchor}|{'|'.join(f'(?<={anchor}{prefix})' for prefix in behind)})"


def _checked(number: int, regex: str, changed: str) -> str:
    if len(regex) <= LONGEST < len(changed):
        raise InvalidJob(
            f"metric_definitions[{number}].Regex: has {len(changed)} characters after ^ also matches behind the "
            f"[rank N] of a line in CloudWatch, and SageMaker accepts {LONGEST}",
            hint="Leave ^ out, or shorten the expression.",
        )
    return changed
