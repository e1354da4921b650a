"""Failure reports of training jobs: from the FailureReason, completed with the logs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloudtrain.aws.advice import find_advice
from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.common.failure import LastLines, complete_report, report_from_reason
from cloudtrain.runtime.diagnose.hints.table import UNKNOWN, JobFacts

_REASON = re.compile(
    r"(?:(?P<kind>AlgorithmError|ClientError|CapacityError|InternalServerError): ?)?"
    r"(?P<said>.*?)(?:,? *exit code: (?P<code>-?\d+))?\s*",
    re.DOTALL,
)
_SAGEMAKER_ITSELF = re.compile(r"(ClientError|CapacityError|InternalServerError): ")


def from_failure_reason(answer: Mapping[str, Any]) -> FailureReport:
    """The report for the FailureReason of a failed job.

    Args:
        answer: SageMaker's response to DescribeTrainingJob.
    """
    match = _REASON.fullmatch(answer.get("FailureReason", ""))
    assert match, "the expression matches every text"
    kind, said = match["kind"], match["said"]
    code = int(match["code"]) if match["code"] else None
    ended = answer.get("TrainingEndTime")
    when = ended.timestamp() if ended else None
    is_ours = FailureReport.from_reason(said) is not None
    if is_ours or kind == "AlgorithmError" or (kind is None and code is not None):
        return replace(report_from_reason(said, code, _advised, job_facts(answer)), time=when)
    message = f"{kind}: {said}" if kind else said or "SageMaker gives no reason"
    return _advised(FailureReport(FailureClass.PLATFORM, message, time=when), message)


def job_facts(answer: Mapping[str, Any]) -> JobFacts:
    """The facts that hints may name. ``answer`` is SageMaker's response to DescribeTrainingJob."""
    return JobFacts(channels=[channel["ChannelName"] for channel in answer.get("InputDataConfig", ())])


def complete(report: FailureReport, last_lines: LastLines, facts: JobFacts = UNKNOWN) -> FailureReport:
    """The report, completed from the job's last lines with the full traceback and the output before the end.

    The report is unchanged if the lines cannot be read, or the script did not cause the failure.
    """
    if report.rank is None and (report.host or _SAGEMAKER_ITSELF.match(report.message)):
        return report
    try:
        tails = last_lines(report.host)
    except PlatformError:
        return report
    return complete_report(report, tails, facts)


def _advised(report: FailureReport, text: str) -> FailureReport:
    """The report with the failure class and the hint for ``text``, if they are known."""
    advice = find_advice(text)
    if advice is None or report.exception_type:
        return report
    return replace(report, failure_class=advice.failure_class, hint=advice.hint)
