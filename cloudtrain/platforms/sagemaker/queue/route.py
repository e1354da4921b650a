"""Decides whether a job is a training job or went through a queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from cloudtrain.aws.aws import Aws
from cloudtrain.errors import JobNotFound
from cloudtrain.platforms.sagemaker.queue.service_job import find_recorded, search

T = TypeVar("T")


def route(job_name: str, aws: Aws, *, queued: Callable[[Mapping[str, Any]], T], direct: Callable[[], T]) -> T:
    """The result of ``queued`` for a job of a queue, else of ``direct``.

    A job that this machine did not submit to a queue, or that Batch has forgotten, is looked up as a training job
    first.

    Args:
        queued: gets Batch's description of the service job.
        direct: raises JobNotFound if SageMaker has no training job of this name.
    """
    answer = find_recorded(job_name, aws)
    if answer is not None and answer["status"] != "FORGOTTEN":
        return queued(answer)
    try:
        return direct()
    except JobNotFound:
        answer = search(job_name, aws) or answer
        if answer is None:
            raise
        return queued(answer)
