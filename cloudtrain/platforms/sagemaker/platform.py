"""`SageMakerPlatform`: runs jobs on Amazon SageMaker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudtrain.aws.aws import Aws, owner_of
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.base import HostOffer, JobDescription, JobState, Request, Series
from cloudtrain.platforms.sagemaker.accounts import KnownAccounts
from cloudtrain.platforms.sagemaker.queue.service_job import route
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import Progress, Store, split_uri

if TYPE_CHECKING:
    from cloudtrain.cost.so_far import Cost
    from cloudtrain.observe import Summary
    from cloudtrain.platforms.checks import Check
    from cloudtrain.platforms.sagemaker.events import JobEvents


class SageMakerPlatform:
    """Runs jobs as SageMaker training jobs.

    Args:
        session: a `cloudtrain.Session`, a ``boto3.Session`` or a ``sagemaker.Session``; defaults to boto3's default
            session.
    """

    name = "sagemaker"
    why_no_spare_hosts = "SageMaker ends a job that loses an instance, and restarts it on new ones"
    why_no_fewer_hosts = why_no_spare_hosts
    export_formats = ("pipeline-step", "step-functions")

    def __init__(self, session: Any = None) -> None:
        self.aws = Aws.of(session, KnownAccounts())
        self._read: dict[str, JobEvents] = {}
        """The events by the name of their training job."""

    def resolve(self, job: TrainingJob) -> TrainingJob:
        from cloudtrain.platforms.sagemaker.render import resolve

        return resolve(job, self.aws)

    def render(self, job: TrainingJob) -> Request:
        from cloudtrain.platforms.sagemaker.check_request import check_training
        from cloudtrain.platforms.sagemaker.render import render

        request = render(job, self.aws.region)
        check_training(request, self.aws, model_channel=job.model_channel_name if job.model_uri else None)
        return request

    def job_warnings(self, job: TrainingJob) -> list[str]:
        from cloudtrain.aws.images import region_warnings
        from cloudtrain.platforms.common.runtime_choice import runtime_warnings
        from cloudtrain.platforms.sagemaker._debugger import retired

        return [*runtime_warnings(job), *region_warnings(job, self.aws.region), *retired(job)]

    def submit(self, request: Request) -> None:
        from cloudtrain.platforms.sagemaker._bundled_runtime import forget_runtime, runtime_uri
        from cloudtrain.platforms.sagemaker.check_request import check_training
        from cloudtrain.platforms.sagemaker.queue.request import training_request

        check_training(request, self.aws)
        body = training_request(request.body)
        self.upload_for(request)
        try:
            self._start(request)
        except PlatformError as error:
            runtime = runtime_uri(body)
            if runtime is None or runtime.rstrip("/") not in error.message:
                raise
            forget_runtime(body)  # it was deleted after the upload
            self.upload_for(request)
            self._start(request)

    def offers(self) -> list[HostOffer]:
        from cloudtrain.platforms.sagemaker.doctor.account import Account
        from cloudtrain.platforms.sagemaker.doctor.resources import training_quotas

        quotas = training_quotas(Account(self.aws))
        return [HostOffer(self.aws.region, kind, hosts=count) for kind, count in quotas.items()]

    def upload_for(self, request: Request) -> None:
        """Upload the runtime and the job secret. The source and data have been uploaded already."""
        from cloudtrain.aws.encryption import upload_key
        from cloudtrain.platforms.sagemaker._bundled_runtime import upload_runtime, upload_secret
        from cloudtrain.platforms.sagemaker.queue.request import training_request

        body = training_request(request.body)
        output = body["OutputDataConfig"]

        def upload(path: Path, uri: str, *, if_absent: bool = False) -> None:
            key = upload_key(uri, output["S3OutputPath"], output.get("KmsKeyId"))
            self.upload(path, uri, if_absent=if_absent, kms_key=key)

        upload_secret(body, partial(upload, if_absent=True))
        upload_runtime(body, upload)

    def export(self, request: Request, kind: str) -> tuple[Mapping[str, Any], Sequence[str]]:
        from cloudtrain.platforms.sagemaker.export import EXPORTS, left_out_variables

        return EXPORTS[kind](request, self.aws.partition), left_out_variables(request)

    def _start(self, request: Request) -> None:
        if "jobQueue" in request.body:
            from cloudtrain.platforms.sagemaker.queue.service_job import submit_to_queue

            submit_to_queue(request, self.aws)
            return
        from cloudtrain.platforms.sagemaker.queue.service_job import forget
        from cloudtrain.platforms.sagemaker.training_job import submit

        submit(request, self.aws)
        forget(request.job_name, self.aws)

    def resubmission(
        self, job: TrainingJob, request: Request
    ) -> Callable[[Callable[[str], object]], bool] | None:
        if "capacity_retries" not in job.platform_options:
            return None
        from cloudtrain.platforms.sagemaker.capacity import Resubmission

        return Resubmission.of(job, request, self.aws, self.submit)

    def describe(self, job_name: str) -> JobDescription:
        from cloudtrain.platforms.sagemaker.describe import describe
        from cloudtrain.platforms.sagemaker.queue.describe import describe_queued

        return route(
            job_name,
            self.aws,
            queued=lambda answer: describe_queued(answer, self.aws),
            direct=lambda: describe(job_name, self.aws),
        )

    def logs(self, job_name: str, *, follow: bool = False) -> Iterator[str]:
        from cloudtrain.platforms.sagemaker.logs import logs
        from cloudtrain.platforms.sagemaker.queue.describe import logs_queued

        return route(
            job_name,
            self.aws,
            queued=lambda answer: logs_queued(answer, self.aws, follow=follow),
            direct=lambda: logs(job_name, self.aws, follow=follow),
        )

    def states(self, job_name: str) -> list[JobState]:
        from cloudtrain.platforms.sagemaker.queue.describe import states_queued
        from cloudtrain.platforms.sagemaker.training_job import describe_training_job, states

        return route(
            job_name,
            self.aws,
            queued=lambda answer: states_queued(answer, self.aws),
            direct=lambda: states(describe_training_job(job_name, self.aws)),
        )

    def metrics(self, job_name: str) -> Series:
        from cloudtrain.platforms.sagemaker.metrics import metrics

        name = self._training_job(job_name)
        return {**self._events(name).summary().series, **metrics(name, self.aws)} if name else {}

    def summary(self, job_name: str) -> Summary:
        """See `Summaries`: the events of the leader, and the samples of the first 50 other hosts."""
        from cloudtrain.observe import Summary

        name = self._training_job(job_name)
        return self._events(name).summary() if name else Summary()

    def _events(self, name: str) -> JobEvents:
        from cloudtrain.platforms.sagemaker.events import JobEvents

        return self._read.setdefault(name, JobEvents(name, self.aws))

    def cost(self, description: JobDescription) -> Cost | None:
        """The cost of the latest training job."""
        from cloudtrain.platforms.sagemaker.cost import cost_of, known_price
        from cloudtrain.platforms.sagemaker.training_job import describe_training_job

        answer = description.answer
        if not answer or "ResourceConfig" not in answer:  # it came from a queue
            name = self._training_job(description.name)
            answer = describe_training_job(name, self.aws) if name else None
        return cost_of(answer, lambda kind: known_price(kind, self.aws)) if answer else None

    def _training_job(self, job_name: str) -> str | None:
        """The name of the job's training job; None while the job waits in a queue for its first one."""
        from cloudtrain.platforms.sagemaker.queue.service_job import find_recorded, training_job_name

        answer = find_recorded(job_name, self.aws)
        return job_name if answer is None else training_job_name(answer)

    def stop(self, job_name: str) -> None:
        from cloudtrain.platforms.sagemaker.queue.service_job import stop_queued
        from cloudtrain.platforms.sagemaker.training_job import TRAINING

        route(
            job_name,
            self.aws,
            queued=lambda answer: stop_queued(answer, self.aws),
            direct=lambda: TRAINING.stop(job_name, self.aws),
        )

    def preflight(
        self, job: TrainingJob, request: Request | None, imports: Sequence[str]
    ) -> Mapping[str, Check]:
        from cloudtrain.platforms.sagemaker.doctor import checks

        return checks(self.aws, job, request, imports)

    def request(self, job_name: str) -> Request:
        from cloudtrain.platforms.sagemaker.queue.describe import queued_request
        from cloudtrain.platforms.sagemaker.training_job import submitted_request

        return route(
            job_name,
            self.aws,
            queued=lambda answer: queued_request(answer, self.aws),
            direct=lambda: submitted_request(job_name, self.aws),
        )

    def list(self) -> Iterator[JobDescription]:
        from cloudtrain.platforms.sagemaker.describe import list_jobs
        from cloudtrain.platforms.sagemaker.queue.describe import list_queued, newest_first

        queued, trained = list_queued(self.aws)
        direct = (job for job in list_jobs(self.aws) if job.name not in trained)
        return newest_first(direct, queued)

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

        Requests encryption with ``kms_key``. Without one, if the bucket refuses the upload, with the account's S3 key.
        """
        from cloudtrain.platforms.sagemaker._uploads import Uploader

        folder, name = split_uri(uri)
        Uploader(self.aws, folder, kms_key).upload(path, name, progress, if_absent=if_absent)

    def make_default_bucket(self, uri: str) -> bool:
        """Create the default bucket if ``uri`` is in it; otherwise do nothing and return False."""
        from cloudtrain.platforms.sagemaker._uploads import make_default_bucket

        return make_default_bucket(self.aws, uri)

    def existing_default_bucket(self) -> str:
        """The default bucket, which is created if it does not exist.

        Raises PlatformError if AWS denies access, or the bucket belongs to another account.
        """
        from cloudtrain.platforms.sagemaker._uploads import existing_default_bucket

        return existing_default_bucket(self.aws)
