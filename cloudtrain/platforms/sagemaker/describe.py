"""What SageMaker knows of jobs."""

from __future__ import annotations

from collections.abc import Iterator

from cloudtrain.platforms.base import JobDescription
from cloudtrain.platforms.sagemaker.aws import Aws


def describe(job_name: str, aws: Aws) -> JobDescription:
    """Raises JobNotFound."""
    raise NotImplementedError


def list_jobs(aws: Aws) -> Iterator[JobDescription]:
    """All training jobs of the account and region, the newest first."""
    raise NotImplementedError
