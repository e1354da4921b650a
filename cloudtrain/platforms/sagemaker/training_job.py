"""The request DescribeTrainingJob."""

from __future__ import annotations

from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import job_errors


def describe_training_job(job_name: str, aws: Aws) -> dict[str, Any]:
    """SageMaker's response to DescribeTrainingJob. Raises JobNotFound."""
    with job_errors(job_name):
        answer: dict[str, Any] = aws.client("sagemaker").describe_training_job(TrainingJobName=job_name)
    return answer
