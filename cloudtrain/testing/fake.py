"""A platform that runs nothing, for tests of code that submits jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.errors import JobExists, JobNotFound, nearest
from cloudtrain.platforms import JobDescription, Request
from cloudtrain.spec import TrainingJob


class FakePlatform:
    """Keeps every request, and gives every job the outcome passed to the constructor.

    >>> platform = FakePlatform(logs=["[rank 0] loss=0.1"])
    >>> job = Estimator("train.py", platform=platform).fit()  # doctest: +SKIP
    >>> platform.requests[0].body["hyperparameters"]          # doctest: +SKIP

    Args:
        status: the state of every job, from the start.
        logs: what every job printed.
        failure: why every job failed; the status is then ``Failed``. If only ``status`` is ``Failed``, jobs get a
            report of the class ``platform``.
        model_data: the URI of every job's model.
    """

    name = "fake"

    def __init__(
        self,
        status: JobStatus = JobStatus.COMPLETED,
        *,
        logs: Sequence[str] = (),
        failure: FailureReport | None = None,
        model_data: str | None = None,
    ) -> None:
        self.requests: list[Request] = []
        """The requests submitted so far, in order."""
        self._status = JobStatus.FAILED if failure else status
        self._logs = tuple(logs)
        if status == JobStatus.FAILED and failure is None:
            failure = FailureReport(FailureClass.PLATFORM, "the FakePlatform was made to fail its jobs")
        self._failure = failure
        self._model_data = model_data
        self._jobs: dict[str, JobDescription] = {}

    def render(self, job: TrainingJob) -> Request:
        """A request whose body is the fields of the job."""
        assert job.job_name, "a job is named before it is rendered"
        return Request(self.name, job.job_name, {**job.to_dict(), "environment": job.shown_environment})

    def submit(self, request: Request) -> None:
        if request.job_name in self._jobs:
            raise JobExists(f"there is already a job {request.job_name}")
        self.requests.append(request)
        stopped = self._status in (JobStatus.STOPPED, JobStatus.INTERRUPTED)
        exit_code = self._failure.exit_code if self._failure else 143 if stopped else 0
        now = time.time()
        self._jobs[request.job_name] = JobDescription(
            name=request.job_name,
            platform=self.name,
            status=self._status,
            submitted_at=now,
            started_at=now,
            ended_at=now if self._status.is_final else None,
            exit_code=exit_code if self._status.is_final else None,
            failure=self._failure,
            model_data=self._model_data,
        )

    def describe(self, job_name: str) -> JobDescription:
        if job_name not in self._jobs:
            raise JobNotFound(f"there is no job {job_name}", hint=nearest(job_name, self._jobs))
        return self._jobs[job_name]

    def logs(self, job_name: str, *, follow: bool = False) -> Iterator[str]:
        self.describe(job_name)
        return iter(self._logs)

    def stop(self, job_name: str) -> None:
        description = self.describe(job_name)
        if not description.status.is_final:
            self._jobs[job_name] = replace(
                description, status=JobStatus.STOPPED, ended_at=time.time(), exit_code=143
            )

    def list(self) -> Iterator[JobDescription]:
        return reversed(list(self._jobs.values()))
