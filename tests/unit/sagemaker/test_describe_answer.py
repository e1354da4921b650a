"""From what DescribeTrainingJob says to a description of the job."""

from __future__ import annotations

from typing import Any

import pytest
from described_answers import START, answer, at

from cloudtrain.contract import JobStatus, encode_arguments
from cloudtrain.platforms.sagemaker.describe import console_url, describe_answer

RUN = (("Starting", 0), ("Downloading", 60), ("Training", 90))
LOST = (*RUN, ("Interrupted", 200), ("Starting", 210), ("Training", 300))

STATUSES = [
    (answer("InProgress", ("Starting", 0)), JobStatus.PENDING, "Starting", ""),
    (answer("InProgress", *RUN), JobStatus.RUNNING, "Training", ""),
    (answer("InProgress", *RUN, ("SomethingNew", 95)), JobStatus.RUNNING, "SomethingNew", ""),
    (
        answer("InProgress", *RUN, ("Interrupted", 99)),
        JobStatus.PENDING,
        "Interrupted",
        "its spot instances were reclaimed",
    ),
    (
        answer("InProgress", *RUN, ("Restarting", 99)),
        JobStatus.PENDING,
        "Restarting",
        "it restarts on other instances",
    ),
    (answer("Stopping", *RUN, ("Stopping", 99)), JobStatus.STOPPING, "Stopping", ""),
    (answer("Completed", *RUN, ("Completed", 200)), JobStatus.COMPLETED, None, ""),
    (answer("Failed", *RUN, ("Failed", 200)), JobStatus.FAILED, None, ""),
    (answer("Stopped", *RUN, ("Stopped", 200)), JobStatus.STOPPED, None, ""),
    (
        answer("Stopped", *RUN, ("MaxRuntimeExceeded", 200)),
        JobStatus.STOPPED,
        None,
        "it ran longer than max_run",
    ),
    (
        answer("Stopped", *RUN, ("MaxWaitTimeExceeded", 200)),
        JobStatus.STOPPED,
        None,
        "it waited and ran longer than max_wait",
    ),
    (
        answer("Stopped", *LOST, ("Interrupted", 400), ("MaxWaitTimeExceeded", 999)),
        JobStatus.INTERRUPTED,
        None,
        "it waited and ran longer than max_wait",
    ),
    (
        answer("Stopped", *RUN, ("Interrupted", 200)),
        JobStatus.INTERRUPTED,
        None,
        "its spot instances were reclaimed",
    ),
    (answer("Deleting", *RUN, ("Completed", 200)), JobStatus.COMPLETED, None, ""),
]


def test_progress_mlflow_and_the_model_package_of_sagemaker() -> None:
    arn = "arn:aws:sagemaker:us-east-1:123456789012"
    response = answer(
        "Completed",
        *RUN,
        ("Completed", 200),
        ProgressInfo={"CurrentEpoch": 2, "MaxEpoch": 5, "CurrentStep": 1200, "TotalStepCountPerEpoch": 4000},
        MlflowConfig={"MlflowResourceArn": f"{arn}:mlflow-app/a", "MlflowExperimentName": "resnet"},
        MlflowDetails={"MlflowExperimentId": "7", "MlflowRunId": "0a1b"},
        OutputModelPackageArn=f"{arn}:model-package/resnet/3",
    )
    details = describe_answer(response).details
    assert details["progress"] == "epoch 2 of 5, step 1,200 of 4,000"
    assert details["mlflow"] == f"{arn}:mlflow-app/a, experiment resnet, run 0a1b"
    assert details["model package"] == f"{arn}:model-package/resnet/3"
    assert describe_answer({**response, "ProgressInfo": {"CurrentStep": 0}}).details["progress"] == "step 0"
    assert "progress" not in describe_answer({**response, "ProgressInfo": {}}).details


@pytest.mark.parametrize(
    ("response", "status", "phase", "reason"),
    STATUSES,
    ids=[f"{response['TrainingJobStatus']}-{response['SecondaryStatus']}" for response, *_ in STATUSES],
)
def test_the_status(response: dict[str, Any], status: JobStatus, phase: str | None, reason: str) -> None:
    described = describe_answer(response)
    assert (described.status, described.phase, described.reason) == (status, phase, reason)
    assert (described.ended_at is not None) == status.is_final


def test_a_spot_job_that_completes() -> None:
    response = answer(
        "Completed",
        *LOST,
        ("Uploading", 500),
        ("Completed", 520),
        TrainingStartTime=at(90),
        TrainingEndTime=at(520),
        TrainingTimeInSeconds=1000,
        BillableTimeInSeconds=300,
        EnableManagedSpotTraining=True,
        CheckpointConfig={"S3Uri": "s3://bucket/checkpoints"},
        Environment={"CLOUDTRAIN_GIT_COMMIT": "abc-dirty"},
        ModelArtifacts={"S3ModelArtifacts": "s3://bucket/out/a-job/output/model.tar.gz"},
        FinalMetricDataList=[{"MetricName": "loss", "Value": 0.25, "Timestamp": at(500)}],
    )
    described = describe_answer(response, place="there")
    assert described.attempt == 1
    assert described.phases == {
        "Starting": 150,
        "Downloading": 30,
        "Training": 310,
        "Interrupted": 10,
        "Uploading": 20,
    }
    assert (described.submitted_at, described.started_at, described.ended_at) == (
        START.timestamp(),
        at(90).timestamp(),
        at(520).timestamp(),
    )
    assert described.exit_code == 0
    assert described.metrics == {"loss": 0.25}
    assert described.model_data == "s3://bucket/out/a-job/output/model.tar.gz"
    assert described.checkpoint_uri == "s3://bucket/checkpoints"
    assert described.git_commit == "abc-dirty"
    assert described.place == "there"
    assert described.details == {
        "instances": "2 x ml.m5.xlarge",
        "training": "1,000 s",
        "billable": "300 s on each instance",
        "spot saving": "70 %",
    }


def test_groups_of_instances_and_their_warm_pool() -> None:
    groups = [
        {"InstanceGroupName": "a", "InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2},
        {"InstanceGroupName": "b", "InstanceType": "ml.c5.xlarge", "InstanceCount": 1},
    ]
    pool = {"Status": "Reused", "ReusedByJob": "b-job", "ResourceRetainedBillableTimeInSeconds": 1200}
    response = answer(
        "Completed", *RUN, ("Completed", 200), ResourceConfig={"InstanceGroups": groups}, WarmPoolStatus=pool
    )
    assert describe_answer(response).details == {
        "instances": "2 x ml.p4d.24xlarge, 1 x ml.c5.xlarge",
        "warm pool": "Reused by b-job, kept 1,200 s",
    }


def test_a_model_that_is_not_compressed_is_a_folder() -> None:
    artifacts = {"S3ModelArtifacts": "s3://bucket/out/a-job/output/model/"}
    response = answer("Completed", *RUN, ("Completed", 200), ModelArtifacts=artifacts)
    assert describe_answer(response).model_data == "s3://bucket/out/a-job/output/model"


@pytest.mark.parametrize("status", ["InProgress", "Failed"])
def test_an_incomplete_job_has_no_model(status: str) -> None:
    artifacts = {"S3ModelArtifacts": "s3://bucket/out/a-job/output/model.tar.gz"}
    response = answer(
        status, *RUN, ("Failed" if status == "Failed" else "Uploading", 200), ModelArtifacts=artifacts
    )
    assert describe_answer(response).model_data is None


@pytest.mark.parametrize(
    ("region", "partition", "domain"),
    [
        ("us-east-1", "aws", "us-east-1.console.aws.amazon.com"),
        ("cn-north-1", "aws-cn", "cn-north-1.console.amazonaws.cn"),
        ("us-gov-west-1", "aws-us-gov", "us-gov-west-1.console.amazonaws-us-gov.com"),
    ],
)
def test_the_page_of_the_console(region: str, partition: str, domain: str) -> None:
    url = f"https://{domain}/sagemaker/home?region={region}#/jobs/a-job"
    assert console_url("a-job", region, partition) == url


def test_arguments_are_a_detail_of_the_job() -> None:
    line = ["fit", "--text", "x" * 3000]
    described = describe_answer(answer("InProgress", *RUN, HyperParameters=encode_arguments(line)))
    assert described.details["arguments"].startswith("fit --text xxx")
    foreign = describe_answer(answer("InProgress", *RUN, HyperParameters={"sagemaker_arguments": "{"}))
    assert "arguments" not in foreign.details
