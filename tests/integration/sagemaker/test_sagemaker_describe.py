"""Descriptions of jobs on SageMaker: while they run, after their end, and the list of all jobs."""

from __future__ import annotations

import pytest
from scripted_job import ScriptedJob
from service import SageMakerService, ServiceError
from training_requests import request

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.errors import PlatformError, TrainingFailed
from cloudtrain.job import Job
from cloudtrain.platforms.sagemaker import SageMakerPlatform
from cloudtrain.storage import open_store


@pytest.fixture
def job(platform: SageMakerPlatform, service: SageMakerService) -> ScriptedJob:
    platform.submit(request("a-job", EnableManagedSpotTraining=True))
    return service.jobs["a-job"]


def test_a_job_from_its_start_to_its_end(platform: SageMakerPlatform, job: ScriptedJob) -> None:
    seen = []
    for status in ("Downloading", "Training", "Interrupted", "Starting", "Training", "Uploading"):
        job.enter(status)
        described = platform.describe("a-job")
        seen.append((described.status, described.phase, described.attempt))
    assert seen == [
        (JobStatus.RUNNING, "Downloading", 0),
        (JobStatus.RUNNING, "Training", 0),
        (JobStatus.PENDING, "Interrupted", 1),
        (JobStatus.PENDING, "Starting", 1),
        (JobStatus.RUNNING, "Training", 1),
        (JobStatus.RUNNING, "Uploading", 1),
    ]
    job.complete(TrainingTimeInSeconds=100, BillableTimeInSeconds=40)
    done = Job.attach("a-job", "sagemaker").wait(timeout=120).describe()
    assert (done.status, done.exit_code) == (JobStatus.COMPLETED, 0)
    assert done.model_data == "s3://bucket/out/a-job/output/model.tar.gz"
    assert done.details["spot saving"] == "60 %"
    assert "us-east-1" in done.place


def test_a_failed_job_names_the_rank_and_shows_its_traceback(
    platform: SageMakerPlatform, job: ScriptedJob
) -> None:
    traceback = "Traceback (most recent call last):\n" + "  a line\n" * 300 + "ValueError: bad"
    sent = FailureReport(
        FailureClass.USER_ERROR,
        "bad",
        rank=1,
        host="algo-2",
        exception_type="ValueError",
        traceback=traceback,
    )
    job.log("algo-1", "[rank 0] fine")
    job.log("algo-2", "[rank 1] epoch 1", *(f"[rank 1] {line}" for line in traceback.split("\n")))
    job.fail(f"AlgorithmError: {sent.reason()[:980]}, exit code: 1")
    with pytest.raises(TrainingFailed, match="rank 1 on algo-2 raised ValueError: bad") as caught:
        Job.attach("a-job", "sagemaker").wait(timeout=120)
    assert caught.value.failure.log_tail[-1] == "ValueError: bad"
    assert platform.describe("a-job").exit_code == 1


def test_a_failure_is_reported_without_logs_too(
    platform: SageMakerPlatform, job: ScriptedJob, service: SageMakerService
) -> None:
    job.log("algo-1", "Traceback (most recent call last):", "ValueError: bad")
    job.fail("AlgorithmError: , exit code: 3")
    service.fail(
        "DescribeLogStreams", ServiceError("AccessDeniedException", "not authorized to perform: logs:x")
    )
    failure = platform.describe("a-job").failure
    assert failure is not None
    assert failure.summary() == "the job: the container exited with code 3"


def test_outputs_are_shown_with_their_place(
    service: SageMakerService, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", service.endpoint)
    platform = SageMakerPlatform()
    platform.submit(request("a-job", OutputDataConfig={"S3OutputPath": f"s3://{s3}/out"}))
    service.jobs["a-job"].complete()
    assert platform.describe("a-job").output_data is None
    open_store(f"s3://{s3}/out/a-job/output").write("output.tar.gz", b"x")
    assert platform.describe("a-job").output_data == f"s3://{s3}/out/a-job/output/output.tar.gz"


def test_all_jobs_the_newest_first(platform: SageMakerPlatform, service: SageMakerService) -> None:
    for number in range(250):
        platform.submit(request(f"job-{number}"))
        service.jobs[f"job-{number}"].created_at = 1_700_000_000 + number
    service.jobs["job-249"].complete()
    listed = list(platform.list())
    assert [found.name for found in listed] == [f"job-{number}" for number in reversed(range(250))]
    assert [found.status for found in listed[:2]] == [JobStatus.COMPLETED, JobStatus.PENDING]
    assert service.count("ListTrainingJobs") == 3


def test_a_region_that_does_not_exist_is_reported(
    monkeypatch: pytest.MonkeyPatch, service: SageMakerService
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us east")
    with pytest.raises(PlatformError, match="us east"):
        SageMakerPlatform().describe("a-job")


def test_missing_credentials_are_reported(monkeypatch: pytest.MonkeyPatch, service: SageMakerService) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(PlatformError) as caught:
        SageMakerPlatform().describe("a-job")
    assert "aws configure" in caught.value.hint
