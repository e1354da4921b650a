"""The log of a job that went through a queue: those of its training jobs, one after the other."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.errors import JobNotFound, PlatformError
from cloudtrain.platforms.sagemaker.logs import Pace, logs
from cloudtrain.platforms.sagemaker.queue.service_job import ENDED, attempts, describe_service_job

POLL_SECONDS = 2.0
LONGEST_POLL_SECONDS = 15.0


def logs_queued(
    answer: Mapping[str, Any],
    aws: Aws,
    *,
    follow: bool,
    poll: float = POLL_SECONDS,
    pace: Pace | None = None,
) -> Iterator[str]:
    """The lines of all attempts; with ``follow``, until the service job has ended.

    Args:
        answer: Batch's response to DescribeServiceJob.
        poll: seconds between the first two questions to Batch. The pause grows while the job waits.
        pace: of the questions to CloudWatch.
    """
    shown: set[str] = set()
    pause = poll
    while True:
        names = attempts(answer)
        for name in names:
            if name in shown:
                continue
            shown.add(name)
            pause = poll
            with suppress(JobNotFound):  # Batch deletes attempts that found no capacity
                yield from logs(name, aws, follow=follow and name == names[-1], pace=pace)
        if not follow or answer["status"] in ENDED or "jobArn" not in answer:
            return
        time.sleep(pause)
        pause = min(1.5 * pause, LONGEST_POLL_SECONDS)
        answer = _refresh(answer, aws)


def _refresh(answer: Mapping[str, Any], aws: Aws) -> Mapping[str, Any]:
    """The current description; the previous one while AWS has transient errors, or if Batch has forgotten the job."""
    try:
        return describe_service_job(answer["jobArn"], aws) or {**answer, "status": "FAILED"}
    except PlatformError as error:
        if not error.is_transient:
            raise
        return answer
