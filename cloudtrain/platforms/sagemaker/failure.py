"""Why a training job failed: from its FailureReason, completed from its logs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloudtrain.aws.advice import find_advice
from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.common.failure import LastLines, complete_report, report_from_reason

_REASON = re.compile(
    r"(?:(?P<kind>AlgorithmError|ClientError|CapacityError|InternalServerError): ?)?"
    r"(?P<said>.*?)(?:,? *exit code: (?P<code>-?\d+))?\s*",
    re.DOTALL,
)
_SAGEMAKER_ITSELF = re.compile(r"(ClientError|CapacityError|InternalServerError): ")


def from_failure_reason(answer: Mapping[str, Any]) -> FailureReport:
    """The report that the FailureReason of a failed job amounts to.

    Args:
        answer: what DescribeTrainingJob says of it.
    """
    match = _REASON.fullmatch(answer.get("FailureReason", ""))
    assert match, "every text fits"
    kind, said = match["kind"], match["said"]
    code = int(match["code"]) if match["code"] else None
    ended = answer.get("TrainingEndTime")
    when = ended.timestamp() if ended else None
    is_ours = FailureReport.from_reason(said) is not None
    if is_ours or kind == "AlgorithmError" or (kind is None and code is not None):
        return replace(report_from_reason(said, code, _advised), time=when)
    message = f"{kind}: {said}" if kind else said or "SageMaker does not say why"
    return _advised(FailureReport(FailureClass.PLATFORM, message, time=when), message)


def complete(report: FailureReport, last_lines: LastLines) -> FailureReport:
    """The same with what the job's last lines tell: the whole traceback, what was printed before the end.

    Where these cannot be read, or the script is not to blame, the report stays as it is.
    """
    if report.rank is None and (report.host or _SAGEMAKER_ITSELF.match(report.message)):
        return report
    try:
        tails = last_lines(report.host)
    except PlatformError:
        return report
    return complete_report(report, tails)


def _advised(report: FailureReport, text: str) -> FailureReport:
    """With the class and the hint that are known for ``text``."""
    advice = find_advice(text)
    if advice is None or report.exception_type:
        return report
    return replace(report, failure_class=advice.failure_class, hint=advice.hint)
