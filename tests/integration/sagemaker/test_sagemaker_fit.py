"""`Estimator.fit` on SageMaker: few calls, what the job waits for, its lines, its end."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import boto3
import pytest
from scripted_job import ScriptedJob
from service import SageMakerService, ServiceError

from cloudtrain import Estimator, TrainingFailed
from cloudtrain.aws import Aws
from cloudtrain.contract import JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.storage import open_store


@pytest.fixture
def estimator(
    service: SageMakerService, s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Estimator:
    for name in ("SAGEMAKER", "CLOUDWATCH_LOGS", "STS"):
        monkeypatch.setenv(f"AWS_ENDPOINT_URL_{name}", service.endpoint)
    (tmp_path / "train.py").write_text("print('training')")
    return Estimator(
        entry_point=str(tmp_path / "train.py"),
        role="arn:aws:iam::123456789012:role/Train",
        image_uri="123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
        instance_type="ml.m5.xlarge",
        output_path=f"s3://{s3}/out",
        code_location=f"s3://{s3}/code",
        sagemaker_session=boto3.Session(),
    )


def play(service: SageMakerService, *, fail: str | None = None) -> None:
    """Have each new job run, for a moment."""

    def live(job: ScriptedJob) -> None:
        job.enter("Downloading", "Downloading input data")
        job.enter("Training", "Training in progress")
        job.log("algo-1", "[rank 0] epoch 1", "[rank 0] epoch 2")
        job.fail(fail) if fail else job.complete()

    def create(job: ScriptedJob) -> None:
        job.enter("Starting", "Starting the training job")
        threading.Timer(0.2, live, [job]).start()

    service.on_create = create


def test_fit_ends_with_what_is_billed(
    estimator: Estimator, service: SageMakerService, capsys: pytest.CaptureFixture[str]
) -> None:
    play(service)
    ended = ScriptedJob.complete
    service.on_create = lambda job: (
        job.enter("Training"),
        ended(job, TrainingTimeInSeconds=90, BillableTimeInSeconds=30, EnableManagedSpotTraining=True),
    )
    estimator.fit()
    assert capsys.readouterr().out.splitlines()[-1] == "training 90 s, billable 30 s, spot saving 67 %"


def test_a_job_that_ran_into_its_limit_is_warned_of(estimator: Estimator, service: SageMakerService) -> None:
    service.on_create = lambda job: (job.enter("Training"), job.enter("MaxRuntimeExceeded"))
    with pytest.warns(UserWarning, match="is Stopped, not Completed: it ran longer than max_run"):
        estimator.fit(logs=False)


def test_waiting_survives_throttling_and_shows_how_to_attach(
    estimator: Estimator, service: SageMakerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(service)
    monkeypatch.setitem(Aws.client.__kwdefaults__, "attempts", 2)
    throttled = [ServiceError("ThrottlingException", "Rate exceeded")] * 5  # more than botocore repeats
    service.fail("DescribeTrainingJob", *throttled)
    job = estimator.fit(wait=False)
    assert job.wait(180).status == JobStatus.COMPLETED
    service.fail("DescribeTrainingJob", *[ServiceError("ExpiredTokenException", "expired")] * 5)
    with pytest.raises(
        PlatformError, match=f"ExpiredToken.*\n.*Attach to it again: cloudtrain wait {job.name}"
    ):
        job.wait()


def test_waiting_with_logs_keeps_its_timeout(
    estimator: Estimator, service: SageMakerService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.on_create = lambda job: (job.enter("Training"), job.log("algo-1", "[rank 0] epoch 1"))
    job = estimator.fit(wait=False)
    with pytest.raises(TimeoutError, match=r"still Running after 4 s.*cloudtrain wait"):
        job.wait(timeout=4, logs=True)
    assert "[rank 0] epoch 1" in capsys.readouterr().out


def test_fit_shows_the_states_and_the_lines(
    estimator: Estimator, service: SageMakerService, capsys: pytest.CaptureFixture[str]
) -> None:
    play(service)
    job = estimator.fit()
    assert job.describe().status == JobStatus.COMPLETED
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("[")] == ["[rank 0] epoch 1", "[rank 0] epoch 2"]
    cost, *states = [line.partition(" ")[2] for line in lines if not line.startswith("[")]
    assert cost.startswith("the job costs at most $5.52")
    assert states == [
        "Starting: Starting the training job",
        "Downloading: Downloading input data",
        "Training: Training in progress",
        "Completed: Training job completed",
    ]


def test_fit_raises_why_the_job_failed(estimator: Estimator, service: SageMakerService) -> None:
    play(service, fail="CapacityError: Unable to provision requested ML compute capacity.")
    with pytest.raises(TrainingFailed, match="CapacityError") as caught:
        estimator.fit(logs=False)
    assert "training_plan" in caught.value.failure.hint


def test_a_job_that_is_submitted_again_takes_two_calls(estimator: Estimator) -> None:
    calls: list[str] = []

    def count(event_name: str, **_: Any) -> None:
        calls.append(event_name.rpartition(".")[2])

    session = boto3.Session()
    session.events.register("before-send", count)
    again = Estimator(**estimator.fields, sagemaker_session=session)
    assert calls == []
    again.fit(wait=False)
    assert sorted(calls) == ["CreateTrainingJob", "PutObject", "PutObject"]
    calls.clear()
    again.fit(wait=False)
    assert calls == ["PutObject", "CreateTrainingJob"]


def test_a_runtime_that_was_removed_is_uploaded_again(
    estimator: Estimator, service: SageMakerService, s3: str
) -> None:
    estimator.fit(wait=False)
    (channel,) = (
        channel
        for job in service.jobs.values()
        for channel in job.request["InputDataConfig"]
        if channel["ChannelName"] == "cloudtrain"
    )
    uri = channel["DataSource"]["S3DataSource"]["S3Uri"]
    store = open_store(uri)
    keys = [entry.key for entry in store.list()]
    assert len(keys) == 1
    store.delete(keys)
    refusal = f'No S3 objects found under S3 URL "{uri}" given in input data source.'
    service.fail("CreateTrainingJob", ServiceError("ValidationException", refusal))
    estimator.fit(wait=False)
    assert [entry.key for entry in store.list()] == keys
    assert len(service.jobs) == 2
