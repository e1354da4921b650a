"""The request of an earlier job, from SageMaker's description."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from scripted_job import REGION
from service import SageMakerService

from cloudtrain.errors import JobNotFound
from cloudtrain.platforms import Change, Request, changes
from cloudtrain.platforms.sagemaker import SageMakerPlatform

ARN = "arn:aws:sagemaker:us-east-1:123456789012:training-job/first-job"
BODY: dict[str, Any] = {
    "TrainingJobName": "first-job",
    "AlgorithmSpecification": {
        "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:v1",
        "TrainingInputMode": "File",
    },
    "RoleArn": "arn:aws:iam::123456789012:role/Trainer",
    "HyperParameters": {"epochs": "5"},
    "InputDataConfig": [
        {
            "ChannelName": "train",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://data/train"}},
        }
    ],
    "OutputDataConfig": {"S3OutputPath": "s3://out/first-job"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
    "Environment": {"WANDB_API_KEY": "secret-value", "MODE": "fast"},
    "Tags": [{"Key": "team", "Value": "vision"}],
}


DESCRIBED = {
    **{name: value for name, value in BODY.items() if name != "Tags"},
    "TrainingJobArn": ARN,
    "TrainingJobStatus": "Completed",
    "SecondaryStatus": "Completed",
    "ModelArtifacts": {"S3ModelArtifacts": "s3://out/first-job/first-job/output/model.tar.gz"},
    "CreationTime": "2026-01-01T00:00:00Z",
    "BillableTimeInSeconds": 60,
    # filled in
    "InputDataConfig": [{**channel, "CompressionType": "None"} for channel in BODY["InputDataConfig"]],
    "OutputDataConfig": {**BODY["OutputDataConfig"], "KmsKeyId": "", "CompressionType": "GZIP"},
    "EnableNetworkIsolation": False,
    "EnableInterContainerTrafficEncryption": False,
    "EnableManagedSpotTraining": False,
}
"""The response of DescribeTrainingJob for it (Amazon SageMaker API Reference)."""


@pytest.fixture
def platform() -> Iterator[SageMakerPlatform]:
    """SageMaker as it answers about the job."""
    found = SageMakerPlatform(boto3.Session("id", "secret", region_name=REGION))
    with Stubber(found.aws.client("sagemaker")) as stub:
        stub.add_response("describe_training_job", DESCRIBED, {"TrainingJobName": "first-job"})
        stub.add_response("list_tags", {"Tags": BODY["Tags"]}, {"ResourceArn": ARN})
        yield found


def test_the_request_of_a_job_is_given_back_without_secrets(platform: SageMakerPlatform) -> None:
    request = platform.request("first-job")
    shown = {**BODY, "Environment": {"WANDB_API_KEY": "***", "MODE": "fast"}}
    assert changes(request, Request("sagemaker", "first-job", shown)) == []
    assert "secret-value" not in request.to_json()


def test_a_later_request_differs_in_what_was_changed(platform: SageMakerPlatform) -> None:
    later = {
        **BODY,
        "TrainingJobName": "second-job",
        "HyperParameters": {"epochs": "10"},
        "OutputDataConfig": {"S3OutputPath": "s3://out/second-job"},
        "Environment": {"WANDB_API_KEY": "***", "MODE": "slow"},
        "Tags": [{"Key": "team", "Value": "speech"}],
    }
    assert changes(platform.request("first-job"), Request("sagemaker", "second-job", later)) == [
        Change("Environment.MODE", "fast", "slow"),
        Change("HyperParameters.epochs", "5", "10"),
        Change("Tags[team].Value", "vision", "speech"),
    ]


def test_a_job_that_is_not_there(service: SageMakerService) -> None:
    with pytest.raises(JobNotFound, match="other-job"):
        SageMakerPlatform().request("other-job")
