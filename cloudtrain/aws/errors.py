"""Converts errors of AWS to errors with hints, using one table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudtrain.contract import FailureClass
from cloudtrain.errors import CloudtrainError, InvalidJob, JobNotFound, PlatformError

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError


@dataclass(frozen=True)
class Advice:
    """The failure class and the hint for texts that contain ``pattern``."""

    pattern: re.Pattern[str]
    failure_class: FailureClass
    hint: str


def _advice(pattern: str, hint: str, failure_class: FailureClass = FailureClass.PLATFORM) -> Advice:
    return Advice(re.compile(pattern, re.IGNORECASE | re.DOTALL), failure_class, hint)


KNOWN = (
    _advice(
        r"JobQueue\b.*(not found|does not exist)",
        "Check platform_options.job_queue: its name, the account and the region. cloudtrain doctor lists the queues "
        "that take training jobs.",
    ),
    _advice(
        r"JobQueue\b.*DISABLED",
        "Enable it: aws batch update-job-queue --state ENABLED --job-queue NAME. Or use another queue.",
    ),
    _advice(
        r"shareIdentifier|share identifier",
        "Set platform_options.share_identifier for a queue with a fair-share policy; leave it out for any other.",
    ),
    _advice(
        r"quotaShare|quota share",
        "Set platform_options.quota_share_name to a quota share of the queue; leave it out for a queue without any.",
    ),
    _advice(
        r"ResourceLimitExceeded|account-level service limit|exceeded .*quota",
        "Request an increase of the quota named above (AWS console, Service Quotas, Amazon SageMaker), use another "
        "instance_type, or wait until other jobs have ended.",
    ),
    _advice(
        r"CapacityError|insufficient capacity|unable to provision requested ML compute capacity",
        "AWS has no free instances of this type: list others in instance_preferences, use another instance_type or "
        "region, or reserve instances with a training_plan (cloudtrain sagemaker offerings). With "
        "platform_options.capacity_retries, cloudtrain submits the job again while you wait; max_retry_attempts is for "
        "internal errors of AWS only.",
    ),
    _advice(
        r"iam:PassRole",
        "Allow your user iam:PassRole on the role of the job, or use a role that you may pass.",
    ),
    _advice(
        r"(could not|cannot|unable to) assume (the )?role|role .*(does not exist|is invalid)|invalid role",
        "Check that the role exists and that its trust policy allows sagemaker.amazonaws.com to assume it.",
    ),
    _advice(
        r"S3 VPC endpoint|route to (an )?S3|Connect timeout on endpoint URL: .*\.s3\.",
        "Add a gateway endpoint for S3 (or a NAT gateway) to the route tables of the subnets, and allow it in the "
        "security groups.",
        FailureClass.STORAGE,
    ),
    _advice(
        r"BucketRegionError|PermanentRedirect|IllegalLocationConstraint|AuthorizationHeaderMalformed"
        r"|bucket .*(must be|is) in (the same|another|this) region",
        "Use a bucket in the job's region, or set AWS_DEFAULT_REGION to the bucket's region.",
        FailureClass.STORAGE,
    ),
    _advice(
        r"No S3 objects found.*/runtime/[0-9a-f]{64}",
        "cloudtrain's runtime was deleted from the bucket. Submit the job again: that uploads it again.",
        FailureClass.STORAGE,
    ),
    _advice(
        r"No S3 objects found|NoSuchKey|NoSuchBucket|ManifestInvalid",
        "Check the URIs given to fit(): the bucket is in the job's region, objects exist below the prefix, and "
        "the role may list them.",
        FailureClass.MISSING_DATA,
    ),
    _advice(
        r"ecr:\w+|cannot pull (the )?(algorithm )?container|manifest (unknown|for .* not found)|CannotPullContainer"
        r"|(cannot find|could not find|does not exist).*(image|repository)|(image|repository).*not found",
        "Check image_uri: the repository and the tag exist, in a region that the job can reach, and the role may pull "
        "it (ecr:BatchGetImage, ecr:GetDownloadUrlForLayer).",
    ),
    _advice(
        r"kms:\w+|KMS\.|KMSAccessDenied",
        "Allow the role to use the KMS key: kms:Decrypt, kms:GenerateDataKey, and kms:CreateGrant for volumes.",
    ),
    _advice(
        r"ExpiredToken|TokenRefreshRequired|UnauthorizedSSOToken|token .*(has )?expired|RequestExpired",
        "The credentials have expired: log in again (aws sso login), or get new ones.",
    ),
    _advice(
        r"UnrecognizedClient|InvalidClientTokenId|InvalidAccessKeyId|SignatureDoesNotMatch|InvalidSignature",
        "Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE.",
    ),
    _advice(
        r"(artifact|data) (upload|download) failed.*(AccessDenied|Access Denied|\b403\b)|s3:\w+",
        "Allow the role of the job s3:GetObject and s3:ListBucket on its inputs, s3:PutObject on its outputs, and "
        "access to the buckets' KMS keys.",
        FailureClass.STORAGE,
    ),
    _advice(
        r"AccessDenied|not authorized to perform",
        "Ask for the permission named above, or use other credentials: AWS_PROFILE.",
    ),
    _advice(
        r"instance type with more memory|OutOfMemory|out of memory",
        "Use a smaller batch, or an instance type with more memory.",
        FailureClass.OUT_OF_MEMORY,
    ),
    _advice(
        r"No space left on device|disk .*full|not enough (disk )?space",
        "Use a larger volume_size, or write less.",
        FailureClass.DISK_FULL,
    ),
    _advice(
        r"Throttling|Rate exceeded|TooManyRequests",
        "AWS throttles the requests of this account: try again in a minute.",
    ),
    _advice(
        r"InternalServerError|InternalFailure|internal (server )?error|ServiceUnavailable",
        "AWS had an internal error: submit the job again. max_retry_attempts does so automatically.",
    ),
)
"""In order of precedence."""


def find_advice(text: str) -> Advice | None:
    return next((advice for advice in KNOWN if advice.pattern.search(text)), None)


ARGUMENTS = {
    "trainingjobname": "job_name",
    "rolearn": "role",
    "trainingimage": "image_uri",
    "traininginputmode": "input_mode",
    "metricdefinitions": "metric_definitions",
    "containerentrypoint": "container_entry_point",
    "containerarguments": "container_arguments",
    "inputdataconfig": "inputs",
    "outputdataconfig": "output_path",
    "checkpointconfig": "checkpoint_s3_uri",
    "instancetype": "instance_type",
    "instancecount": "instance_count",
    "instancegroups": "instance_groups",
    "instancepreferences": "instance_preferences",
    "volumesizeingb": "volume_size",
    "volumekmskeyid": "volume_kms_key",
    "keepaliveperiodinseconds": "keep_alive_period_in_seconds",
    "trainingplanarn": "training_plan",
    "maxruntimeinseconds": "max_run",
    "maxwaittimeinseconds": "max_wait",
    "maxpendingtimeinseconds": "max_pending_time_in_seconds",
    "mlflowconfig": "mlflow_config",
    "modelpackageconfig": "model_package_config",
    "maximumretryattempts": "max_retry_attempts",
    "subnets": "subnets",
    "securitygroupids": "security_group_ids",
    "hyperparameters": "hyperparameters",
    "environment": "environment",
    "tags": "tags",
}
"""Fields of CreateTrainingJob, in lower case, and the arguments that set them."""

_FIELD = re.compile(r"at '(?P<path>[\w.\[\]]+)' failed to satisfy|parameter:? (?P<other>[A-Z][\w.\[\]]+)")
"""Matches the name of a field in validation errors of SageMaker and botocore."""

_REGION = "Set AWS_DEFAULT_REGION to a region of AWS, such as us-east-1."
_NETWORK = "Check the network, its proxy, and AWS_ENDPOINT_URL."
_LOG_IN = "Log in: aws configure, aws sso login, or set AWS_PROFILE."
_BOTOCORE = {
    "NoCredentialsError": _LOG_IN,
    "PartialCredentialsError": _LOG_IN,
    "ProfileNotFound": "Check AWS_PROFILE. To list the profiles: aws configure list-profiles.",
    "SSOError": "Log in again: aws sso login.",
    "TokenRetrievalError": "Log in again: aws sso login.",
    "CredentialRetrievalError": "Check the source of the credentials: the profile, its credential_process, or the "
    "machine's role.",
    "NoRegionError": _REGION,
    "InvalidRegionError": _REGION,
    "UnknownRegionError": _REGION,
    "EndpointConnectionError": "Check the name of the region (AWS_DEFAULT_REGION), the network, and AWS_ENDPOINT_URL.",
    "ConnectionError": _NETWORK,
    "HTTPClientError": _NETWORK,
}
"""The hints for errors of botocore, by class name. A class that is not listed has the hint of its base class."""

_THROTTLED = re.compile("Throttl|TooManyRequests|RequestLimitExceeded|^LimitExceededException|^SlowDown")
_NOT_FOUND = re.compile(r"Requested resource not found|Could not find|does not exist", re.IGNORECASE)


@contextmanager
def aws_errors(subject: str) -> Iterator[None]:
    """Convert botocore's errors in the block to a `PlatformError` about ``subject``, or to `InvalidJob`."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (ClientError, BotoCoreError) as error:
        converted = (
            from_response(error, subject) if isinstance(error, ClientError) else from_botocore(error, subject)
        )
        converted.is_transient = may_pass(error)
        raise converted from error


@contextmanager
def job_errors(job_name: str) -> Iterator[None]:
    """Like `aws_errors`, for a request about a job. Raises JobNotFound if it does not exist."""
    with aws_errors(f"job {job_name}"), found(f"training job {job_name}"):
        yield


@contextmanager
def found(what: str) -> Iterator[None]:
    """Convert botocore's error for a missing job to JobNotFound."""
    from botocore.exceptions import ClientError

    try:
        yield
    except ClientError as error:
        if is_not_found(error):
            raise JobNotFound(
                f"SageMaker has no {what} in this account and region",
                hint="Check its name, the account (AWS_PROFILE) and the region (AWS_DEFAULT_REGION).",
            ) from error
        raise


def error_code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def error_message(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Message", ""))


def may_pass(error: BaseException) -> bool:
    """Whether the error may be transient: throttling, a failure of AWS, or of the network."""
    from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return status >= 500 or bool(_THROTTLED.search(error_code(error)))
    return isinstance(error, (ConnectionError, HTTPClientError))


def may_have_done(error: CloudtrainError) -> bool:
    """Whether AWS may have carried out a request that failed: it was reached, but a response may have been lost."""
    from botocore import exceptions

    unreached = (
        exceptions.ConnectTimeoutError,
        exceptions.EndpointConnectionError,
        exceptions.ProxyConnectionError,
        exceptions.SSLError,
    )
    return error.is_transient and not isinstance(error.__cause__, unreached)


def is_not_found(error: ClientError) -> bool:
    """Whether the error is for a missing resource, which SageMaker reports in two ways."""
    code = error_code(error)
    if code in ("ResourceNotFound", "ResourceNotFoundException"):
        return True
    return code == "ValidationException" and bool(_NOT_FOUND.search(error_message(error)))


def from_response(error: ClientError, subject: str) -> CloudtrainError:
    """The error for an error response of AWS."""
    code, message = error_code(error), error_message(error)
    if code in ("ValidationException", "ValidationError"):
        invalid = _invalid_field(message, subject)
        if invalid:
            return invalid
    advice = find_advice(f"{code}: {message}")
    return PlatformError(f"{subject}: {code}: {message}".rstrip(": "), hint=advice.hint if advice else "")


def from_botocore(error: BotoCoreError, subject: str) -> CloudtrainError:
    """The error for an error of botocore, without a response of AWS."""
    from botocore import exceptions

    if isinstance(error, exceptions.ParamValidationError):
        text = str(error).partition("\n")[2] or str(error)
        return _invalid_field(text, subject) or InvalidJob(f"{subject}: {text}")
    kinds = [kind.__name__ for kind in type(error).__mro__]
    hint = next((_BOTOCORE[kind] for kind in kinds if kind in _BOTOCORE), "")
    said = "no AWS credentials were found" if hint == _LOG_IN else str(error)
    return PlatformError(f"{subject}: {said}", hint=hint)


def _invalid_field(message: str, subject: str) -> InvalidJob | None:
    """The error for a message that names a field of the request, or None."""
    match = _FIELD.search(message)
    if match is None:
        return None
    path = match["path"] or match["other"]
    names = [re.sub(r"\W.*", "", name).lower() for name in path.split(".")]
    argument = next((ARGUMENTS[name] for name in reversed(names) if name in ARGUMENTS), None)
    hint = (
        f"Check the argument {argument}."
        if argument
        else f"Check {path} in the request, which --dry-run prints."
    )
    return InvalidJob(f"{subject}: {message.strip()}", hint=hint)
