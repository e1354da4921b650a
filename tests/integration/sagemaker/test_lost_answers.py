"""Jobs that may exist although AWS did not say so: responses get lost, or AWS is too busy. None starts twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted_job import ACCOUNT
from scripted_queue import ScriptedQueues
from service import Lost, SageMakerService, ServiceError
from training_requests import request, training_request

from cloudtrain.contract import JobStatus
from cloudtrain.errors import JobNotFound, PlatformError
from cloudtrain.platforms import Request
from cloudtrain.platforms.sagemaker import SageMakerPlatform
from cloudtrain.storage import state_home

pytestmark = pytest.mark.proof(
    "Amazon SageMaker",
    imitated="moto 5 answers, and requests are compared with those that the SDK sent. **No job has run on AWS**",
)

BUSY = ServiceError("RequestsThrottled", "busy", 529)
"""An error that may pass, which botocore does not know: it does not repeat the request."""

QUEUED = Request(
    "sagemaker",
    "a-job",
    {
        "jobName": "a-job",
        "jobQueue": "gpus",
        "serviceJobType": "SAGEMAKER_TRAINING",
        "serviceRequestPayload": training_request("a-job"),
    },
)


@pytest.fixture
def queues(service: SageMakerService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedQueues:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    found = ScriptedQueues(service).install()
    found.add("gpus")
    return found


def test_a_job_that_started_although_its_request_failed_counts_as_success(
    platform: SageMakerPlatform, service: SageMakerService
) -> None:
    service.fail("CreateTrainingJob", Lost(), BUSY)
    platform.submit(request("a-job"))
    assert service.count("CreateTrainingJob") == 2
    service.fail("CreateTrainingJob", BUSY)
    with pytest.raises(PlatformError, match="job b-job cannot be started: RequestsThrottled") as caught:
        platform.submit(request("b-job"))
    assert "may have started" not in caught.value.hint


def test_an_unclear_submission_is_reported(platform: SageMakerPlatform, service: SageMakerService) -> None:
    service.fail("CreateTrainingJob", Lost(), BUSY)
    service.fail("DescribeTrainingJob", BUSY)
    with pytest.raises(PlatformError, match="job a-job cannot be started: RequestsThrottled") as caught:
        platform.submit(request("a-job"))
    assert "may have started all the same. See: cloudtrain describe a-job" in caught.value.hint


def test_a_busy_queue_gets_no_second_job(
    platform: SageMakerPlatform, queues: ScriptedQueues, service: SageMakerService
) -> None:
    platform.submit(QUEUED)
    service.fail("listservicejobs", BUSY)
    with pytest.raises(PlatformError, match="the jobs of queue gpus: RequestsThrottled"):
        platform.submit(QUEUED)
    assert len(queues.jobs) == 1


def test_an_unclear_submission_to_a_queue_is_reported(
    platform: SageMakerPlatform, queues: ScriptedQueues, service: SageMakerService
) -> None:
    service.fail("submitservicejob", Lost(), BUSY)

    def busy_later(given: dict[str, object]) -> dict[str, object]:
        service.fail("listservicejobs", BUSY)
        return {"jobSummaryList": []}

    queues.service._listservicejobs = busy_later  # type: ignore[attr-defined]
    with pytest.raises(PlatformError, match="job a-job cannot be queued: RequestsThrottled") as caught:
        platform.submit(QUEUED)
    assert "may have started all the same" in caught.value.hint


def test_a_busy_service_is_not_reported_as_a_missing_job(
    platform: SageMakerPlatform, queues: ScriptedQueues, service: SageMakerService
) -> None:
    platform.submit(QUEUED)
    for file in (state_home() / "queued").iterdir():
        file.unlink()  # as on another machine
    service.fail("listservicejobs", BUSY, BUSY)
    for look in (lambda: platform.describe("a-job"), lambda: list(platform.list())):
        with pytest.raises(PlatformError, match="RequestsThrottled"):
            look()
    assert platform.describe("a-job").status == JobStatus.PENDING


@pytest.mark.parametrize("change", ["another account", "forgotten by Batch"])
def test_a_record_of_a_queued_job_does_not_hide_a_training_job_of_its_name(
    platform: SageMakerPlatform, queues: ScriptedQueues, service: SageMakerService, change: str
) -> None:
    platform.submit(QUEUED)
    queues.jobs[0].start()
    platform.describe("a-job")
    if change == "another account":
        [file] = (state_home() / "queued").iterdir()
        file.write_text(file.read_text().replace(ACCOUNT, "999999999999"))
    else:
        queues.jobs.clear()
    service._CreateTrainingJob(training_request("a-job"))
    platform.stop("a-job")
    assert service.jobs["a-job"].status == "Stopping"
    with pytest.raises(JobNotFound):
        platform.describe("no-job")
