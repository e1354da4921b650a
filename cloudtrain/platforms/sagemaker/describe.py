"""Descriptions of jobs, from SageMaker's responses."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.errors import PlatformError, StorageError
from cloudtrain.platforms.base import JobDescription
from cloudtrain.platforms.sagemaker._details import details
from cloudtrain.platforms.sagemaker.failure import complete, from_failure_reason, job_facts
from cloudtrain.platforms.sagemaker.training_job import (
    REASONS,
    describe_training_job,
    first_time,
    job_status,
    phases,
    restarts,
)
from cloudtrain.storage import S3Store, join_uri

CONSOLES = {
    "aws-cn": "console.amazonaws.cn",
    "aws-eusc": "console.amazonaws-eusc.eu",
    "aws-us-gov": "console.amazonaws-us-gov.com",
}
"""The domains of the console, by the partition of AWS."""
PAGE = 100


def describe(job_name: str, aws: Aws) -> JobDescription:
    """The complete description of a job. The cause of a failure also comes from its logs. Raises JobNotFound."""
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
    return describe_answer(answer, failure=failure, output_data=output, place=place)


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
    """The URI of the model, if the job left one; a folder if the model is not compressed."""
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
