"""Starting and stopping training jobs, against the scripted service and against moto."""

from __future__ import annotations

import traceback

import boto3
import pytest
from service import Lost, SageMakerService, ServiceError
from training_requests import request, training_request

from cloudtrain.errors import InvalidJob, JobExists, JobNotFound, PlatformError
from cloudtrain.job import Job
from cloudtrain.platforms.sagemaker import SageMakerPlatform


def test_the_request_is_sent_as_it_was_rendered(moto: str) -> None:
    platform = SageMakerPlatform()
    body = training_request("a-job", HyperParameters={"lr": "0.1"})
    platform.submit(request("a-job", HyperParameters={"lr": "0.1"}))
    answer = boto3.Session().client("sagemaker").describe_training_job(TrainingJobName="a-job")
    body.pop("AlgorithmSpecification")  # moto adds metrics to it
    assert {key: answer[key] for key in body} == body


def test_secrets_go_to_aws_and_nowhere_else(platform: SageMakerPlatform, service: SageMakerService) -> None:
    shown = request("a-job", secrets={"API_TOKEN": "s3cr3t"}, Environment={"A": "1", "API_TOKEN": "***"})
    platform.submit(shown)
    assert service.jobs["a-job"].request["Environment"] == {"A": "1", "API_TOKEN": "s3cr3t"}
    assert "s3cr3t" not in shown.to_json()


def test_starting_a_job_is_one_call(platform: SageMakerPlatform, service: SageMakerService) -> None:
    platform.submit(request("a-job"))
    assert [operation for operation, _ in service.calls] == ["CreateTrainingJob"]


def test_a_repeated_request_starts_no_second_job(
    platform: SageMakerPlatform, service: SageMakerService
) -> None:
    service.fail("CreateTrainingJob", Lost())  # botocore repeats what was done already
    platform.submit(request("a-job", secrets={"API_TOKEN": "s3cr3t"}, Environment={"API_TOKEN": "***"}))
    platform.submit(request("a-job", secrets={"API_TOKEN": "s3cr3t"}, Environment={"API_TOKEN": "***"}))
    assert service.count("CreateTrainingJob") == 3
    assert list(service.jobs) == ["a-job"]


@pytest.mark.parametrize(
    "changes",
    [
        {"HyperParameters": {"lr": "0.2"}},
        {"StoppingCondition": {"MaxRuntimeInSeconds": 60}},
        {"ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_another_job_of_the_name_is_an_error(
    changes: dict[str, object], platform: SageMakerPlatform, service: SageMakerService
) -> None:
    platform.submit(request("a-job", HyperParameters={"lr": "0.1"}))
    with pytest.raises(JobExists, match="already a training job a-job"):
        platform.submit(request("a-job", **{"HyperParameters": {"lr": "0.1"}, **changes}))


def test_the_same_request_for_an_old_job_is_an_error(
    platform: SageMakerPlatform, service: SageMakerService
) -> None:
    platform.submit(request("a-job"))
    service.jobs["a-job"].created_at -= 86400
    platform.submit(request("a-job"))  # it still runs
    service.jobs["a-job"].complete()  # to ask again is to want another one
    with pytest.raises(JobExists):
        platform.submit(request("a-job"))


def test_a_wrong_value_names_its_argument(platform: SageMakerPlatform) -> None:
    message = r"instance_count: expected an integer, got str \(ResourceConfig.InstanceCount\)"
    with pytest.raises(InvalidJob, match=message):
        platform.submit(
            request("a-job", ResourceConfig={"InstanceType": "ml.m5.xlarge", "InstanceCount": "two"})
        )


def test_a_refusal_has_a_hint(platform: SageMakerPlatform, service: SageMakerService) -> None:
    message = (
        "The account-level service limit 'ml.p4d.24xlarge for training job usage' is 0 Instances, with current "
        "utilization of 0 Instances and a request delta of 2 Instances. Please use AWS Service Quotas to request "
        "an increase for this quota."
    )
    service.fail("CreateTrainingJob", ServiceError("ResourceLimitExceeded", message))
    with pytest.raises(PlatformError, match=r"job a-job cannot be started: .*ml\.p4d\.24xlarge") as caught:
        platform.submit(request("a-job"))
    assert "Service Quotas" in caught.value.hint
    assert service.jobs == {}


def test_a_refusal_that_quotes_the_environment_shows_no_secret(
    platform: SageMakerPlatform, service: SageMakerService
) -> None:
    message = (
        "Value '{A=1, API_TOKEN=s3cr3t}' at 'environment' failed to satisfy constraint: Member must be short"
    )
    service.fail("CreateTrainingJob", ServiceError("ValidationException", message))
    shown = request("a-job", secrets={"API_TOKEN": "s3cr3t"}, Environment={"A": "1", "API_TOKEN": "***"})
    with pytest.raises(InvalidJob, match=r"A=1, API_TOKEN=\*\*\*}' at 'environment'") as caught:
        platform.submit(shown)
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.hint == "Check the argument environment."


def test_throttling_is_waited_out(platform: SageMakerPlatform, service: SageMakerService) -> None:
    service.fail("CreateTrainingJob", *[ServiceError("ThrottlingException", "Rate exceeded")] * 2)
    platform.submit(request("a-job"))
    assert list(service.jobs) == ["a-job"]


def test_stop_reaches_the_job_and_leaves_an_ended_one_alone(
    platform: SageMakerPlatform, service: SageMakerService
) -> None:
    platform.submit(request("a-job"))
    Job.attach("a-job", "sagemaker").stop()
    assert service.jobs["a-job"].stopping.is_set()
    platform.stop("a-job")
    service.jobs["a-job"].stopped()
    platform.stop("a-job")
    assert platform.describe("a-job").status == "Stopped"


def test_a_stop_that_fails_is_an_error(platform: SageMakerPlatform, service: SageMakerService) -> None:
    platform.submit(request("a-job"))
    service.fail("StopTrainingJob", ServiceError("ValidationException", "something else"))
    with pytest.raises(PlatformError, match="something else"):
        platform.stop("a-job")


def test_unknown_jobs_are_not_found(platform: SageMakerPlatform) -> None:
    for ask in (platform.describe, platform.stop, lambda name: next(platform.logs(name), None)):
        with pytest.raises(JobNotFound, match="no training job no-job"):
            ask("no-job")
    with pytest.raises(JobNotFound):
        Job.attach("no-job", "sagemaker")


def test_moto_has_no_such_job_either(moto: str) -> None:
    with pytest.raises(JobNotFound):
        SageMakerPlatform().describe("no-job")
