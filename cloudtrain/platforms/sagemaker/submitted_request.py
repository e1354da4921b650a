"""Reconstructs the request of a job from SageMaker's description."""

from __future__ import annotations

from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import job_errors
from cloudtrain.contract.settings import HIDDEN_VARIABLES
from cloudtrain.platforms.base import Request
from cloudtrain.spec import REDACTED, redact

SELECTED = ("SelectedInstanceType", "SelectedInstanceCount")
"""Fields of ResourceConfig that only the description has: what SageMaker selected from the preferences."""


def submitted_request(job_name: str, aws: Aws) -> Request:
    """The fields of DescribeTrainingJob that CreateTrainingJob accepts, and the tags.

    Raises:
        JobNotFound: the account and region have no such job.
    """
    client = aws.client("sagemaker")
    with job_errors(job_name):
        described = client.describe_training_job(TrainingJobName=job_name)
        pages = client.get_paginator("list_tags").paginate(ResourceArn=described["TrainingJobArn"])
        tags = [tag for page in pages for tag in page["Tags"]]
    taken = client.meta.service_model.operation_model("CreateTrainingJob").input_shape.members
    body: dict[str, Any] = {name: value for name, value in described.items() if name in taken}
    if tags:
        body["Tags"] = tags
    if body.get("ResourceConfig"):
        body["ResourceConfig"] = {
            name: value for name, value in body["ResourceConfig"].items() if name not in SELECTED
        }
    if body.get("Environment"):
        body["Environment"] = _without_secrets(body["Environment"])
    if body.get("OutputDataConfig", {}).get("CompressionType") == "GZIP":  # SageMaker's default
        body["OutputDataConfig"] = {
            name: value for name, value in body["OutputDataConfig"].items() if name != "CompressionType"
        }
    return Request("sagemaker", job_name, body)


def _without_secrets(environment: dict[str, str]) -> dict[str, str]:
    """The variables, with ``***`` for likely secrets and for those that the job names as its ``secrets``."""
    names = environment.get(HIDDEN_VARIABLES, "").split(",")
    return {**redact(environment), **{name: REDACTED for name in names if name in environment}}
