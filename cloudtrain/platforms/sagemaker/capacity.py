"""Resubmits a job for which AWS had no capacity, under the same name, while the client waits.

AWS's own retries (``RetryStrategy``) restart a job only after an internal error.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import job_errors
from cloudtrain.errors import JobNotFound, PlatformError
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.sagemaker.queue.request import QueueOptions
from cloudtrain.platforms.sagemaker.training_job import describe_training_job
from cloudtrain.platforms.waiting import Patience, patiently
from cloudtrain.spec import TrainingJob

DEFAULT_WAIT = 86400
"""For how many seconds after its first submission a job is resubmitted."""

_NO_CAPACITY = re.compile(
    r"CapacityError|insufficient capacity|provision requested ML compute", re.IGNORECASE
)
_NO_QUOTA = re.compile("ResourceLimitExceeded")


@dataclass(frozen=True)
class Pace:
    """The intervals between requests, in seconds."""

    first: float = 60.0
    """Before the first resubmission. It doubles each time."""
    longest: float = 900.0
    deletion: float = 2.0
    """Between two looks at a job that is being deleted, and after the first transient error of AWS."""
    patience: float = 300.0
    """The maximum duration of a deletion, and of transient errors."""


class Resubmission:
    """Resubmits one job until AWS has capacity, or until the user's limit of attempts or time is reached.

    The failed job is deleted to free its name. It never ran, so nothing is lost, and references to the job's name lead
    to the new one. This needs the permission ``sagemaker:DeleteTrainingJob``.

    Args:
        submit: sends the request.
    """

    def __init__(
        self,
        options: QueueOptions,
        request: Request,
        aws: Aws,
        submit: Callable[[Request], None],
        pace: Pace | None = None,
    ) -> None:
        self._request = request
        self._aws = aws
        self._submit = submit
        self._left = options.capacity_retries or 0
        self._end = time.monotonic() + (options.capacity_wait or DEFAULT_WAIT)
        self._pace = pace or Pace()
        self._pause = self._pace.first

    @classmethod
    def of(
        cls, job: TrainingJob, request: Request, aws: Aws, submit: Callable[[Request], None]
    ) -> Resubmission | None:
        """The resubmission of a job that was just submitted; None if the job does not request one."""
        options = QueueOptions.of(job)
        return cls(options, request, aws, submit) if options.capacity_retries else None

    def __call__(self, say: Callable[[str], object]) -> bool:
        """Submit the failed job again, after a pause. Returns whether it was submitted.

        Returns False without an effect if it failed for another reason, or no attempts or no time are left.

        Args:
            say: called with each line for the user.

        Raises:
            PlatformError: the failed job cannot be deleted, or SageMaker refuses the request for another reason.
        """
        name = self._request.job_name
        failed = self._find()
        if failed is None or not has_no_capacity(failed):
            return False
        while self._left and time.monotonic() + self._pause < self._end:
            self._left -= 1
            self._sleep(say)
            found = self._find()
            if found is not None and found.get("CreationTime") != failed.get("CreationTime"):
                return True  # the user has resubmitted it
            if found is None and failed:
                say(f"Job {name} was deleted, so it is not submitted again.")
                return False
            try:
                if found is not None:
                    self._delete()
                    failed = {}
                self._submit(self._request)
            except KeyboardInterrupt:
                say(f"Interrupted: job {name} is deleted, and may have been submitted again.")
                raise
            except PlatformError as error:
                if not (_NO_QUOTA.search(error.message) or error.is_transient):
                    raise
                say(f"Job {name} cannot be submitted again yet: {error.message}")
            else:
                say(f"Job {name} is submitted again.")
                return True
        say(f"Job {name} is not submitted again: the attempts or the time of its platform_options are over.")
        return False

    def _sleep(self, say: Callable[[str], object]) -> None:
        name, pause = self._request.job_name, self._pause
        self._pause = min(2 * pause, self._pace.longest)
        until = datetime.fromtimestamp(time.time() + self._end - time.monotonic())
        try:
            say(
                f"AWS has no capacity for job {name}. It is submitted again in {pause:.0f} s, then up to {self._left} "
                f"more times until {until:%Y-%m-%d %H:%M}. Ctrl-C ends this."
            )
            time.sleep(pause)
        except KeyboardInterrupt:
            say(f"Job {name} is not submitted again.")
            raise

    def _find(self) -> Mapping[str, Any] | None:
        """SageMaker's description of the job; None if there is none. Retries while AWS has transient errors."""
        patience = Patience(longest=self._pace.patience, first_pause=self._pace.deletion)
        try:
            return patiently(lambda: describe_training_job(self._request.job_name, self._aws), patience)
        except JobNotFound:
            return None

    def _delete(self) -> None:
        """Delete the failed job, and wait until its name is free."""
        name = self._request.job_name
        with job_errors(name):
            self._aws.client("sagemaker").delete_training_job(TrainingJobName=name)
        end = time.monotonic() + self._pace.patience
        while self._find() is not None:
            if time.monotonic() > end:
                raise PlatformError(
                    f"job {name} is still being deleted after {self._pace.patience:.0f} s",
                    hint="Submit it again later, or under another name.",
                )
            time.sleep(self._pace.deletion)


def has_no_capacity(answer: Mapping[str, Any]) -> bool:
    """Whether a job failed because AWS had no instances for it, and never ran.

    Args:
        answer: SageMaker's response to DescribeTrainingJob.
    """
    return (
        answer.get("TrainingJobStatus") == "Failed"
        and answer.get("TrainingStartTime") is None
        and bool(_NO_CAPACITY.search(answer.get("FailureReason", "")))
    )
