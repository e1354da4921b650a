"""The log of a job: the CloudWatch streams of all its hosts as one."""

from __future__ import annotations

from collections.abc import Iterator

from cloudtrain.platforms.sagemaker.aws import Aws


def logs(job_name: str, aws: Aws, *, follow: bool) -> Iterator[str]:
    """The lines of all hosts in time order, each prefixed by its host. Raises JobNotFound."""
    raise NotImplementedError
