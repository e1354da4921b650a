"""The scripted service answers as botocore's model of AWS says."""

from __future__ import annotations

import boto3
import pytest
from botocore.exceptions import ClientError
from scripted_job import ACCOUNT
from service import SageMakerService
from training_requests import training_request


def test_a_job_is_described_as_it_was_requested(service: SageMakerService) -> None:
    client = boto3.Session().client("sagemaker")
    request = training_request("a-job")
    client.create_training_job(**request)
    service.jobs["a-job"].complete(BillableTimeInSeconds=7)
    answer = client.describe_training_job(TrainingJobName="a-job")
    assert {key: answer[key] for key in request if key != "Tags"} == request
    assert (answer["TrainingJobStatus"], answer["BillableTimeInSeconds"]) == ("Completed", 7)
    assert [found["Status"] for found in answer["SecondaryStatusTransitions"]] == ["Starting", "Completed"]


def test_the_token_repeats_at_the_end_of_a_stream(service: SageMakerService) -> None:
    boto3.Session().client("sagemaker").create_training_job(**training_request("a-job"))
    service.jobs["a-job"].log("algo-1", "one", "two")
    logs = boto3.Session().client("logs")
    where = {"logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamName": "a-job/algo-1-1700000001"}
    first = logs.get_log_events(**where, startFromHead=True)
    again = logs.get_log_events(**where, nextToken=first["nextForwardToken"])
    assert [event["message"] for event in first["events"]] == ["one", "two"]
    assert (again["events"], again["nextForwardToken"]) == ([], first["nextForwardToken"])


def test_what_is_not_there_is_an_error(service: SageMakerService) -> None:
    with pytest.raises(ClientError, match=r"ValidationException.*Requested resource not found"):
        boto3.Session().client("sagemaker").describe_training_job(TrainingJobName="no-job")
    with pytest.raises(ClientError, match="log group does not exist"):
        boto3.Session().client("logs").describe_log_streams(logGroupName="/aws/sagemaker/TrainingJobs")


def test_get_caller_identity_returns_the_account(service: SageMakerService) -> None:
    assert boto3.Session().client("sts").get_caller_identity()["Account"] == ACCOUNT
