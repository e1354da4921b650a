"""A job that AWS has no capacity for is submitted again under its name, while the client waits."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from scripted_job import ScriptedJob
from service import SageMakerService, ServiceError
from training_requests import request

from cloudtrain import Estimator, TrainingFailed
from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.platforms import Request, get_platform
from cloudtrain.platforms.sagemaker import SageMakerPlatform
from cloudtrain.platforms.sagemaker.capacity import Pace, Resubmission
from cloudtrain.platforms.sagemaker.logs import Pace as LogPace, logs
from cloudtrain.platforms.sagemaker.queue.request import QueueOptions
from cloudtrain.platforms.sagemaker.render import check
from cloudtrain.spec import TrainingJob

NO_CAPACITY = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different type."
)
QUICK = Pace(first=0.05, longest=0.1, deletion=0.02, patience=5)
SHOWN = request("a-job", secrets={"API_TOKEN": "s3cr3t"}, Environment={"API_TOKEN": "***"})


def resubmission(platform: SageMakerPlatform, retries: int = 3, wait: int | None = None) -> Resubmission:
    """That of the job ``a-job``, which is submitted."""
    options = QueueOptions(capacity_retries=retries, capacity_wait=wait)
    platform.submit(SHOWN)
    return Resubmission(options, SHOWN, platform.aws, platform.submit, QUICK)


def fail(service: SageMakerService, reason: str = NO_CAPACITY) -> ScriptedJob:
    job = service.jobs["a-job"]
    job.fail(reason)
    return job


def test_the_same_request_is_sent_again_under_the_same_name(
    platform: SageMakerPlatform, service: SageMakerService
) -> None:
    again, said = resubmission(platform), []
    first = fail(service)
    assert again(said.append)
    second = service.jobs["a-job"]
    assert second is not first
    assert second.request == first.request
    assert second.request["Environment"] == {"API_TOKEN": "s3cr3t"}
    assert "no capacity for job a-job. It is submitted again in 0 s, then up to 2 more times" in said[0]
    until = datetime.strptime(said[0].partition(" more times until ")[2][:16], "%Y-%m-%d %H:%M")
    assert datetime.now() < until < datetime.now() + timedelta(days=30)
    assert said[0].endswith("Ctrl-C ends this.")
    assert said[1:] == ["Job a-job is submitted again."]


def test_the_attempts_are_limited(platform: SageMakerPlatform, service: SageMakerService) -> None:
    again, said = resubmission(platform, retries=2), []
    for is_submitted in (True, True, False):
        fail(service)
        assert again(said.append) is is_submitted
    assert service.count("CreateTrainingJob") == 3
    assert service.jobs["a-job"].status == "Failed", "the last one is kept"
    assert "attempts or the time of its platform_options are over" in said[-1]


def test_the_time_is_limited(platform: SageMakerPlatform, service: SageMakerService) -> None:
    again, said = resubmission(platform, wait=1), []
    time.sleep(1)
    fail(service)
    assert not again(said.append)
    assert service.count("DeleteTrainingJob") == 0
    assert len(said) == 1


@pytest.mark.parametrize("reason", ["AlgorithmError: exit code 1", "InternalServerError: try again", ""])
def test_another_failure_is_left_alone(
    reason: str, platform: SageMakerPlatform, service: SageMakerService
) -> None:
    again = resubmission(platform)
    fail(service, reason)
    assert not again(pytest.fail)
    assert service.count("DeleteTrainingJob") == 0


def test_a_job_that_has_trained_is_never_deleted(
    platform: SageMakerPlatform, service: SageMakerService
) -> None:
    again = resubmission(platform)
    service.jobs["a-job"].enter("Training")
    service.jobs["a-job"].enter("Interrupted")
    fail(service)
    assert not again(pytest.fail)
    assert service.count("DeleteTrainingJob") == 0


def test_a_quota_that_others_use_in_the_meantime_counts_as_an_attempt(
    platform: SageMakerPlatform, service: SageMakerService
) -> None:
    again, said = resubmission(platform), []
    fail(service)
    service.fail("CreateTrainingJob", ServiceError("ResourceLimitExceeded", "The limit is 2 Instances"))
    assert again(said.append)
    assert service.jobs["a-job"].status == "InProgress"
    assert "cannot be submitted again yet: job a-job cannot be started: ResourceLimitExceeded" in said[1]


@pytest.mark.parametrize("operation", ["Describe", "Delete", "Create"])
def test_errors_that_pass_do_not_end_the_wait(
    operation: str, platform: SageMakerPlatform, service: SageMakerService
) -> None:
    again, said = resubmission(platform), []
    fail(service)
    busy = ServiceError(
        "RequestsThrottled", "busy", 529
    )  # botocore does not know it, and does not repeat the request
    service.fail(f"{operation}TrainingJob", busy)
    assert again(said.append)
    assert service.jobs["a-job"].status == "InProgress"
    assert said[-1] == "Job a-job is submitted again."
    assert service.count("CreateTrainingJob") == (3 if operation == "Create" else 2)


def test_a_job_that_the_user_deletes_or_submits_ends_it(
    platform: SageMakerPlatform, service: SageMakerService
) -> None:
    again, said = resubmission(platform), []
    fail(service)

    def delete(line: str) -> None:
        said.append(line)
        service.jobs.pop("a-job", None)

    assert not again(delete)
    assert said[-1] == "Job a-job was deleted, so it is not submitted again."
    assert service.count("CreateTrainingJob") == 1

    again = resubmission(platform)
    failed = fail(service)

    def replace(_: str) -> None:
        if service.jobs["a-job"] is failed:
            service.jobs.pop("a-job").created_at -= 10
            platform.submit(SHOWN)

    assert again(replace)
    assert service.count("DeleteTrainingJob") == 0


def test_a_missing_permission_to_delete_is_an_error(
    platform: SageMakerPlatform, service: SageMakerService
) -> None:
    again = resubmission(platform)
    fail(service)
    message = "User is not authorized to perform: sagemaker:DeleteTrainingJob"
    service.fail("DeleteTrainingJob", ServiceError("AccessDeniedException", message))
    with pytest.raises(PlatformError, match="sagemaker:DeleteTrainingJob") as caught:
        again(lambda line: None)
    assert "permission named above" in caught.value.hint
    assert service.jobs["a-job"].status == "Failed"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity_wait": 60}, "needs capacity_retries"),
        ({"capacity_retries": -1}, "capacity_retries"),
        ({"capacity_retries": 1001}, "capacity_retries"),
        ({"capacity_retries": 3, "job_queue": "gpus"}, "is for jobs without a queue"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        check(TrainingJob(role="arn:aws:iam::123456789012:role/Train", platform_options=options))


@pytest.fixture
def job_folder(
    service: SageMakerService, s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A folder with a script, as the working folder; the URI for outputs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('training')")
    yield f"s3://{s3}/out"


def options(output: str) -> dict[str, Any]:
    return {
        "output_path": output,
        "image_uri": "python:3.12",
        "instance_type": "ml.p4d.24xlarge",
        "role": "arn:aws:iam::123456789012:role/Train",
        "platform_options": {"capacity_retries": 1},
    }


def play(service: SageMakerService, failures: int) -> None:
    """The first jobs fail for lack of capacity, the next one completes."""
    started = []

    def on_create(job: ScriptedJob) -> None:
        job.enter("Starting", "Launching requested ML instances")
        started.append(job)
        if len(started) <= failures:
            job.fail(NO_CAPACITY)
        else:
            job.enter("Training")
            job.log("algo-1", "[rank 0] training")
            job.complete()

    service.on_create = on_create


class HastyPlatform(SageMakerPlatform):
    """With shorter pauses."""

    def resubmission(self, job: TrainingJob, request: Request) -> Resubmission | None:
        return Resubmission(QueueOptions.of(job), request, self.aws, self.submit, QUICK)

    def logs(self, job_name: str, *, follow: bool = False) -> Iterator[str]:
        return logs(job_name, self.aws, follow=follow, pace=LogPace(shortest=0.05, settle=0.1))


def test_fit_submits_again(
    job_folder: str, service: SageMakerService, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = {**options(job_folder), "platform": HastyPlatform()}
    play(service, failures=1)
    job = Estimator("train.py", **fields).fit()
    assert job.status == "Completed"
    assert list(service.jobs) == [job.name]
    lines = capsys.readouterr().out.splitlines()
    assert f"Job {job.name} is submitted again." in lines
    assert "[rank 0] training" in lines

    play(service, failures=2)
    with pytest.raises(TrainingFailed, match="CapacityError") as caught:
        Estimator("train.py", **fields).fit(logs=False)
    assert "platform_options.capacity_retries" in caught.value.failure.hint
    with pytest.warns(UserWarning, match="capacity_retries has no effect"):
        Estimator("train.py", **fields).fit(wait=False)


def test_ctrl_c_leaves_the_failed_job(job_folder: str, service: SageMakerService) -> None:
    play(service, failures=1)
    fields = [
        f"--set={name}={value}" for name, value in options(job_folder).items() if name != "platform_options"
    ]
    command = [sys.executable, "-m", "cloudtrain", "submit", "train.py", "--name", "patient", *fields]
    with subprocess.Popen(
        [*command, "--set", "platform_options.capacity_retries=3"], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "AWS has no capacity for job patient" in line:
                process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert said[-1] == "Job patient is not submitted again.\n"
    assert "Traceback" not in "".join(said)
    assert service.jobs["patient"].status == "Failed"
    assert service.count("CreateTrainingJob") == 1
    platform = get_platform("sagemaker")
    assert platform.describe("patient").failure is not None
