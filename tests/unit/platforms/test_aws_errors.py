"""Every known answer of AWS becomes an error with a sentence on what to do."""

from __future__ import annotations

import pytest
from botocore import exceptions
from botocore.exceptions import BotoCoreError, ClientError

from cloudtrain.aws.errors import aws_errors, job_errors
from cloudtrain.errors import CloudtrainError, InvalidJob, JobNotFound, PlatformError

ROLE = "arn:aws:iam::123456789012:role/Train"


def answered(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "CreateTrainingJob")


def raised(error: Exception) -> CloudtrainError:
    with pytest.raises(CloudtrainError) as caught, aws_errors("job x"):
        raise error
    assert caught.value.message.startswith("job x: ")
    return caught.value


ANSWERS = [
    (
        "ResourceLimitExceeded",
        "The account-level service limit 'ml.p3.2xlarge for training job usage' is 0 Instances, with current "
        "utilization of 0 Instances and a request delta of 1 Instances. Please use AWS Service Quotas to request "
        "an increase for this quota.",
        "Service Quotas",
    ),
    ("CapacityError", "Unable to provision requested ML compute capacity.", "another"),
    (
        "AccessDeniedException",
        f"User: arn:aws:iam::123456789012:user/me is not authorized to perform: iam:PassRole on resource: {ROLE}",
        "iam:PassRole",
    ),
    (
        "AccessDeniedException",
        "User: arn:aws:iam::123456789012:user/me is not authorized to perform: sagemaker:CreateTrainingJob on "
        "resource: arn:aws:sagemaker:us-east-1:123456789012:training-job/x",
        "permission named above",
    ),
    (
        "ValidationException",
        f"Could not assume role {ROLE}. Please ensure that the role exists and allows principal "
        "'sagemaker.amazonaws.com' to assume the role.",
        "trust policy",
    ),
    (
        "ValidationException",
        'No S3 objects found under S3 URL "s3://bucket/train" given in input data source. Please ensure that the '
        f"bucket exists in the selected region (us-west-2), that objects exist under that S3 prefix, and that the "
        f'role "{ROLE}" has "s3:ListBucket" permissions on bucket "bucket".',
        "fit()",
    ),
    (
        "ValidationException",
        "Cannot find the requested image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
        "image_uri",
    ),
    (
        "ValidationException",
        "The repository of your image x does not grant ecr:GetDownloadUrlForLayer, ecr:BatchGetImage permission to "
        "sagemaker.amazonaws.com service principal.",
        "image_uri",
    ),
    (
        "PermanentRedirect",
        "The bucket you are attempting to access must be addressed using the specified endpoint.",
        "region",
    ),
    ("ExpiredTokenException", "The security token included in the request is expired", "log in again"),
    ("UnrecognizedClientException", "The security token included in the request is invalid.", "AWS_PROFILE"),
    (
        "InvalidSignatureException",
        "The request signature we calculated does not match",
        "AWS_SECRET_ACCESS_KEY",
    ),
    ("ThrottlingException", "Rate exceeded", "in a minute"),
    ("InternalFailure", "The request processing has failed", "again"),
    ("KMSAccessDeniedException", "The ciphertext refers to a customer master key", "KMS key"),
]


@pytest.mark.parametrize(("code", "message", "hint"), ANSWERS, ids=[f"{row[0]}-{row[2]}" for row in ANSWERS])
def test_what_aws_answers(code: str, message: str, hint: str) -> None:
    error = raised(answered(code, message))
    assert isinstance(error, PlatformError)
    assert error.message == f"job x: {code}: {message}"
    assert hint in error.hint


FIELDS = [
    (
        "1 validation error detected: Value 'my_job' at 'trainingJobName' failed to satisfy constraint: Member must "
        "satisfy regular expression pattern: [a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}",
        "job_name",
    ),
    (
        "1 validation error detected: Value 'ml.x' at 'resourceConfig.instanceType' failed to satisfy constraint: "
        "Member must satisfy enum value set: [ml.m5.xlarge]",
        "instance_type",
    ),
    (
        "1 validation error detected: Value '' at 'inputDataConfig.1.member.dataSource.s3DataSource.s3Uri' failed to "
        "satisfy constraint: Member must satisfy regular expression pattern: ^(https|s3)://",
        "inputs",
    ),
]


@pytest.mark.parametrize(("message", "argument"), FIELDS, ids=[row[1] for row in FIELDS])
def test_a_field_that_aws_refuses_is_named_as_an_argument(message: str, argument: str) -> None:
    error = raised(answered("ValidationException", message))
    assert isinstance(error, InvalidJob)
    assert error.hint == f"Check the argument {argument}."


def test_a_field_that_botocore_refuses_is_named_as_an_argument() -> None:
    report = "Invalid type for parameter ResourceConfig.VolumeSizeInGB, value: x, type: <class 'str'>"
    error = raised(exceptions.ParamValidationError(report=report))
    assert isinstance(error, InvalidJob)
    assert error.message == f"job x: {report}"
    assert error.hint == "Check the argument volume_size."


def test_a_field_that_no_argument_makes_is_named_too() -> None:
    error = raised(
        exceptions.ParamValidationError(report='Unknown parameter in input: "Foo", must be one of: x')
    )
    assert isinstance(error, InvalidJob)


BEFORE: list[tuple[BotoCoreError, str]] = [
    (exceptions.NoCredentialsError(), "aws configure"),
    (exceptions.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"), "aws configure"),
    (exceptions.ProfileNotFound(profile="me"), "AWS_PROFILE"),
    (exceptions.UnauthorizedSSOTokenError(), "aws sso login"),
    (exceptions.TokenRetrievalError(provider="sso", error_msg="expired"), "aws sso login"),
    (exceptions.CredentialRetrievalError(provider="process", error_msg="no"), "credential_process"),
    (exceptions.NoRegionError(), "AWS_DEFAULT_REGION"),
    (exceptions.InvalidRegionError(region_name="us east"), "AWS_DEFAULT_REGION"),
    (exceptions.EndpointConnectionError(endpoint_url="https://api.sagemaker.us-x.amazonaws.com"), "region"),
    (exceptions.ConnectTimeoutError(endpoint_url="https://x"), "network"),
    (exceptions.ReadTimeoutError(endpoint_url="https://x"), "network"),
]


@pytest.mark.parametrize(("error", "hint"), BEFORE, ids=[type(row[0]).__name__ for row in BEFORE])
def test_errors_before_aws_answers(error: BotoCoreError, hint: str) -> None:
    found = raised(error)
    assert isinstance(found, PlatformError)
    assert hint in found.hint


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("ValidationException", "Requested resource not found."),
        (
            "ValidationException",
            "Could not find training job 'arn:aws:sagemaker:us-east-1:1:training-job/x'.",
        ),
        ("ResourceNotFound", ""),
    ],
)
def test_a_job_that_is_not_there(code: str, message: str) -> None:
    with pytest.raises(JobNotFound, match="no training job x"), job_errors("x"):
        raise answered(code, message)


def test_other_errors_about_a_job_stay_what_they_are() -> None:
    with pytest.raises(PlatformError, match="job x: AccessDeniedException"), job_errors("x"):
        raise answered("AccessDeniedException", "no")
