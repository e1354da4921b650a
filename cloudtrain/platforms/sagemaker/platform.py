"""`SageMakerPlatform`: runs jobs on Amazon SageMaker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudtrain.aws.aws import Aws, owner_of
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.base import JobDescription, JobState, Request, Series
from cloudtrain.platforms.sagemaker._accounts import KnownAccounts
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import Progress, Store, split_uri

if TYPE_CHECKING:
    from cloudtrain.platforms.checks import Check


class SageMakerPlatform:
    """Runs jobs as SageMaker training jobs.

    Args:
        session: a ``boto3.Session`` or a ``sagemaker.Session``; defaults to boto3's default session.
    """

    name = "sagemaker"

    def __init__(self, session: Any = None) -> None:
        self.aws = Aws(session, memory=KnownAccounts())

    def resolve(self, job: TrainingJob) -> TrainingJob:
        from cloudtrain.platforms.sagemaker.resolve import resolve

        return resolve(job, self.aws)

    def render(self, job: TrainingJob) -> Request:
        from cloudtrain.platforms.sagemaker.render import render

        return render(job, self.aws.region)

    def submit(self, request: Request) -> None:
        from cloudtrain.aws.encryption import upload_key
        from cloudtrain.platforms.sagemaker._bundled_runtime import (
            forget_runtime,
            runtime_uri,
            upload_runtime,
        )
        from cloudtrain.platforms.sagemaker._job_secret import upload_secret
        from cloudtrain.platforms.sagemaker.submit import submit

        output = request.body["OutputDataConfig"]

        def upload(path: Path, uri: str, *, if_absent: bool = False) -> None:
            key = upload_key(uri, output["S3OutputPath"], output.get("KmsKeyId"))
            self.upload(path, uri, if_absent=if_absent, kms_key=key)

        upload_secret(request.body, partial(upload, if_absent=True))
        upload_runtime(request.body, upload)
        try:
            submit(request, self.aws)
        except PlatformError as error:
            runtime = runtime_uri(request.body)
            if runtime is None or runtime.rstrip("/") not in error.message:
                raise
            forget_runtime(request.body)  # it was deleted after the upload
            upload_runtime(request.body, upload)
            submit(request, self.aws)

    def describe(self, job_name: str) -> JobDescription:
        from cloudtrain.platforms.sagemaker.describe import describe

        return describe(job_name, self.aws)

    def logs(self, job_name: str, *, follow: bool = False) -> Iterator[str]:
        from cloudtrain.platforms.sagemaker.logs import logs

        return logs(job_name, self.aws, follow=follow)

    def states(self, job_name: str) -> list[JobState]:
        from cloudtrain.platforms.sagemaker._statuses import states
        from cloudtrain.platforms.sagemaker._training_job import describe_training_job

        return states(describe_training_job(job_name, self.aws))

    def metrics(self, job_name: str) -> Series:
        from cloudtrain.platforms.sagemaker.metrics import metrics

        return metrics(job_name, self.aws)

    def cost(self, job_name: str) -> float | None:
        from cloudtrain.platforms.sagemaker._training_job import describe_training_job
        from cloudtrain.platforms.sagemaker.price import cost_of, hourly_price

        return cost_of(describe_training_job(job_name, self.aws), lambda kind: hourly_price(kind, self.aws))

    def stop(self, job_name: str) -> None:
        from cloudtrain.platforms.sagemaker.submit import stop

        stop(job_name, self.aws)

    def preflight(
        self, job: TrainingJob, request: Request | None, imports: Sequence[str]
    ) -> Mapping[str, Check]:
        from cloudtrain.platforms.sagemaker.doctor import checks

        return checks(self.aws, job, request, imports)

    def request(self, job_name: str) -> Request:
        from cloudtrain.platforms.sagemaker.submitted_request import submitted_request

        return submitted_request(job_name, self.aws)

    def list(self) -> Iterator[JobDescription]:
        from cloudtrain.platforms.sagemaker.describe import list_jobs

        return list_jobs(self.aws)

    def code_location(self, job: TrainingJob) -> str:
        return job.code_location or f"{self.aws.own_folder(job)}/source"

    def open_store(self, uri: str) -> Store:
        from cloudtrain.storage import FileStore, S3Store, uri_scheme, uri_to_path

        if uri_scheme(uri) == "file":
            return FileStore(uri_to_path(uri))
        return S3Store(uri, self.aws.session, owner=owner_of(uri))

    def upload(
        self,
        path: Path,
        uri: str,
        progress: Progress | None = None,
        *,
        if_absent: bool = True,
        kms_key: str | None = None,
    ) -> None:
        """Upload a file to ``uri``; with ``if_absent``, only if it does not exist. Creates the default bucket.

        Asks for encryption with ``kms_key``, or, if a bucket refuses the upload without, with the account's key for S3.
        """
        from cloudtrain.platforms.sagemaker._uploads import Uploader

        folder, name = split_uri(uri)
        Uploader(self.aws, folder, kms_key).upload(path, name, progress, if_absent=if_absent)

    def make_default_bucket(self, uri: str) -> bool:
        """Create the default bucket if ``uri`` is in it; otherwise do nothing and return False."""
        from cloudtrain.platforms.sagemaker._uploads import make_default_bucket

        return make_default_bucket(self.aws, uri)
