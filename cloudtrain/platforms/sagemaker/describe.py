"""Descriptions of jobs and reports of their failures, from SageMaker's responses."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors, find_advice
from cloudtrain.contract import FailureClass, FailureReport, JobStatus, decode_arguments
from cloudtrain.contract.request_body import argument_details
from cloudtrain.errors import PlatformError, StorageError
from cloudtrain.platforms.base import JobDescription
from cloudtrain.platforms.common.failure import LastLines, complete_report, report_from_reason
from cloudtrain.platforms.sagemaker.training_job import (
    REASONS,
    describe_training_job,
    first_time,
    host_count,
    instance_groups,
    job_status,
    phases,
    restarts,
)
from cloudtrain.runtime.diagnose.hints.table import UNKNOWN, JobFacts
from cloudtrain.storage import S3Store, join_uri

CONSOLES = {
    "aws-cn": "console.amazonaws.cn",
    "aws-eusc": "console.amazonaws-eusc.eu",
    "aws-us-gov": "console.amazonaws-us-gov.com",
}
"""The domains of the console, by the partition of AWS."""
PAGE = 100


def describe(job_name: str, aws: Aws) -> JobDescription:
    """The complete description of a job, with the cause of a failure from its logs too. Raises JobNotFound."""
    answer = describe_training_job(job_name, aws)
    place = console_url(job_name, aws.region, aws.partition)
    status = job_status(answer)
    failure = from_failure_reason(answer) if status == JobStatus.FAILED else None
    if failure:
        from cloudtrain.platforms.sagemaker.logs import last_lines

        if "No S3 objects found" in failure.message:
            from cloudtrain.platforms.sagemaker._bundled_runtime import forget_runtime

            forget_runtime(answer)
        failure = complete(failure, lambda host: last_lines(job_name, aws, host), job_facts(answer))
    if status == JobStatus.INTERRUPTED:
        failure = _preemption_report(answer)
    output = _output_data(answer, aws) if status.is_final else None
    description = describe_answer(answer, failure=failure, output_data=output, place=place)
    return description if status == JobStatus.PENDING else _observed(description, answer, aws)


def _observed(description: JobDescription, answer: Mapping[str, Any], aws: Aws) -> JobDescription:
    """The description, completed with the leader's reports: progress, metrics, its last sample, warnings."""
    from cloudtrain.platforms.sagemaker.events import recent_summary

    summary = recent_summary(answer, aws)
    running = description.status == JobStatus.RUNNING
    return replace(
        description,
        **summary.steps.result(time.time(), is_running=running),
        metrics={**summary.metrics, **description.metrics},
        metric_ranges=summary.ranges,
        samples=summary.last_samples(),
        warnings=summary.warnings,
    )


def _preemption_report(answer: Mapping[str, Any]) -> FailureReport:
    ended = answer.get("TrainingEndTime")
    return FailureReport(
        FailureClass.PREEMPTED,
        "its spot instances were reclaimed, and it was not restarted",
        "Increase max_wait, or submit the job again: it resumes from its last checkpoint.",
        exit_code=128 + signal.SIGTERM,
        time=ended.timestamp() if ended else None,
    )


def list_jobs(aws: Aws) -> Iterator[JobDescription]:
    """All training jobs of the account and region, newest first, with only their states and times."""
    with aws_errors("the training jobs"):
        pages = aws.client("sagemaker").get_paginator("list_training_jobs")
        order = {"SortBy": "CreationTime", "SortOrder": "Descending"}
        for page in pages.paginate(**order, PaginationConfig={"PageSize": PAGE}):
            for row in page["TrainingJobSummaries"]:
                yield describe_answer(
                    row, place=console_url(row["TrainingJobName"], aws.region, aws.partition)
                )


def describe_answer(answer: Mapping[str, Any], **fields: Any) -> JobDescription:
    """The description from a response of DescribeTrainingJob, or a row of ListTrainingJobs.

    Args:
        fields: fields of the description that are not in the response.
    """
    status, secondary = job_status(answer), answer.get("SecondaryStatus", "")
    ended = answer.get("TrainingEndTime"), answer.get("LastModifiedTime")
    failure = fields.get("failure")
    return JobDescription(
        name=answer["TrainingJobName"],
        platform="sagemaker",
        status=status,
        submitted_at=answer["CreationTime"].timestamp(),
        started_at=first_time([answer.get("TrainingStartTime")]),
        ended_at=first_time(ended) if status.is_final else None,
        attempt=restarts(answer),
        exit_code=0 if status == JobStatus.COMPLETED else failure.exit_code if failure else None,
        reason=REASONS.get(secondary, ""),
        phase=None if status.is_final else secondary or None,
        phases=phases(answer),
        metrics={found["MetricName"]: found["Value"] for found in answer.get("FinalMetricDataList", ())},
        model_data=_model_data(answer, status),
        checkpoint_uri=answer.get("CheckpointConfig", {}).get("S3Uri"),
        git_commit=answer.get("Environment", {}).get("CLOUDTRAIN_GIT_COMMIT"),
        details=details(answer),
        answer=answer,
        **fields,
    )


def console(region: str, partition: str) -> str:
    """The URL of the AWS console."""
    return f"https://{region}.{CONSOLES.get(partition, 'console.aws.amazon.com')}"


def console_url(job_name: str, region: str, partition: str) -> str:
    """The page of the job in the AWS console."""
    return f"{console(region, partition)}/sagemaker/home?region={region}#/jobs/{job_name}"


def _model_data(answer: Mapping[str, Any], status: JobStatus) -> str | None:
    """The URI of the model, if the job may have saved one; a folder if the model is not compressed."""
    if status not in (JobStatus.COMPLETED, JobStatus.STOPPED):
        return None
    uri = answer.get("ModelArtifacts", {}).get("S3ModelArtifacts")
    return uri.rstrip("/") if uri else None


def _output_data(answer: Mapping[str, Any], aws: Aws) -> str | None:
    """The URI of the other outputs; None if there are none, or access is denied."""
    output = answer.get("OutputDataConfig", {})
    if not output.get("S3OutputPath"):
        return None
    try:
        folder = join_uri(output["S3OutputPath"], answer["TrainingJobName"], "output")
        store = S3Store(folder, aws.session)
        if output.get("CompressionType") == "NONE":
            return join_uri(folder, "data") if next(iter(store.list("data/")), None) else None
        return join_uri(folder, "output.tar.gz") if store.stat("output.tar.gz") else None
    except (StorageError, PlatformError):
        return None


def details(answer: Mapping[str, Any]) -> dict[str, str]:
    """The facts in a response of DescribeTrainingJob, by name."""
    found: dict[str, str] = {}
    with contextlib.suppress(ValueError):  # a job of another client, which has a hyperparameter of this name
        found.update(argument_details(decode_arguments(answer.get("HyperParameters", {}))))
    return {**found, **_instances(answer), **_progress(answer), **_services(answer)}


def _instances(answer: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    resources = answer.get("ResourceConfig", {})
    groups, preferences = instance_groups(resources), resources.get("InstancePreferences", ())
    if groups:
        found["instances"] = ", ".join(
            f"{group['InstanceCount']} x {group['InstanceType']}" for group in groups
        )
    if preferences:
        kinds = [one["InstanceType"] for one in preferences]
        if groups:
            place = kinds.index(groups[0]["InstanceType"]) + 1 if groups[0]["InstanceType"] in kinds else None
            found["selected"] = f"preference {place} of {len(kinds)}" if place else "another type"
        else:
            found["instances"] = f"not selected yet: {', '.join(kinds)}"
    training, billable = answer.get("TrainingTimeInSeconds"), answer.get("BillableTimeInSeconds")
    if training is not None:
        found["training"] = f"{training:,} s"
    if billable is not None:
        on_each = " on each instance" if host_count(resources) > 1 else ""
        found["billable"] = f"{billable:,} s{on_each}"
    if answer.get("EnableManagedSpotTraining") and training and billable is not None:
        found["spot saving"] = f"{100 * (1 - billable / training):.0f} %"
    pool = answer.get("WarmPoolStatus")
    if pool:
        kept = pool.get("ResourceRetainedBillableTimeInSeconds")
        found["warm pool"] = (
            pool["Status"]
            + (f" by {pool['ReusedByJob']}" if "ReusedByJob" in pool else "")
            + (f", kept {kept:,} s" if kept is not None else "")
        )
    return found


def _progress(answer: Mapping[str, Any]) -> dict[str, str]:
    """The progress that SageMaker reports, such as ``epoch 2 of 5, step 120 of 400``."""
    progress = answer.get("ProgressInfo") or {}
    parts = [
        f"{name} {progress[current]:,}" + (f" of {progress[total]:,}" if progress.get(total) else "")
        for name, current, total in (
            ("epoch", "CurrentEpoch", "MaxEpoch"),
            ("step", "CurrentStep", "TotalStepCountPerEpoch"),
        )
        if progress.get(current) is not None
    ]
    return {"progress": ", ".join(parts)} if parts else {}


def _services(answer: Mapping[str, Any]) -> dict[str, str]:
    """The run in managed MLflow, and the model package that the job created."""
    found: dict[str, str] = {}
    config, run = answer.get("MlflowConfig") or {}, answer.get("MlflowDetails") or {}
    if config or run:
        parts = {
            "": config.get("MlflowResourceArn"),
            "experiment ": config.get("MlflowExperimentName") or run.get("MlflowExperimentId"),
            "run ": run.get("MlflowRunId") or config.get("MlflowRunName"),
        }
        found["mlflow"] = ", ".join(f"{name}{value}" for name, value in parts.items() if value)
    package = answer.get("OutputModelPackageArn")
    if package:
        found["model package"] = package
    return found


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
    """The report, completed with the full traceback and the last output from the job's last lines.

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
