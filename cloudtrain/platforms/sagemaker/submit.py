"""Starting and stopping training jobs."""

from __future__ import annotations

from cloudtrain.platforms.base import Request
from cloudtrain.platforms.sagemaker.aws import Aws


def submit(request: Request, aws: Aws) -> None:
    """Start the job. Raises JobExists, or another PlatformError."""
    raise NotImplementedError


def stop(job_name: str, aws: Aws) -> None:
    """Ask the job to end. Raises JobNotFound."""
    raise NotImplementedError
