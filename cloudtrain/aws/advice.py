"""What to do about what SageMaker says, in its answers and in a job's FailureReason."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cloudtrain.contract import FailureClass


@dataclass(frozen=True)
class Advice:
    """For texts in which ``pattern`` is found. ``failure_class`` is that of a job that failed of it."""

    pattern: re.Pattern[str]
    failure_class: FailureClass
    hint: str


def _advice(pattern: str, failure_class: FailureClass, hint: str) -> Advice:
    return Advice(re.compile(pattern, re.IGNORECASE | re.DOTALL), failure_class, hint)


KNOWN = (
    _advice(
        r"ResourceLimitExceeded|account-level service limit|exceeded .*quota",
        FailureClass.PLATFORM,
        "Ask for more: AWS console, Service Quotas, Amazon SageMaker, the quota named above; or take another "
        "instance_type, or wait until other jobs have ended.",
    ),
    _advice(
        r"CapacityError|insufficient capacity|unable to provision requested ML compute capacity",
        FailureClass.PLATFORM,
        "AWS has no such instances free now: try later, another instance_type or region, or reserve them with a "
        "training_plan; max_retry_attempts starts the job again by itself.",
    ),
    _advice(
        r"iam:PassRole",
        FailureClass.PLATFORM,
        "Allow your user iam:PassRole on the role of the job, or give a role that you may pass.",
    ),
    _advice(
        r"(could not|cannot|unable to) assume (the )?role|role .*(does not exist|is invalid)|invalid role",
        FailureClass.PLATFORM,
        "Check that the role exists and that its trust policy lets sagemaker.amazonaws.com assume it.",
    ),
    _advice(
        r"S3 VPC endpoint|route to (an )?S3|Connect timeout on endpoint URL: .*\.s3\.",
        FailureClass.STORAGE,
        "Add a gateway endpoint for S3 (or a NAT gateway) to the route tables of the subnets, and let the security "
        "groups send to it.",
    ),
    _advice(
        r"BucketRegionError|PermanentRedirect|IllegalLocationConstraint|AuthorizationHeaderMalformed"
        r"|bucket .*(must be|is) in (the same|another|this) region",
        FailureClass.STORAGE,
        "Use a bucket in the region of the job, or set AWS_DEFAULT_REGION to the bucket's region.",
    ),
    _advice(
        r"No S3 objects found.*/runtime/[0-9a-f]{64}",
        FailureClass.STORAGE,
        "cloudtrain's runtime, uploaded before, was removed from the bucket: submit the job again, and it is uploaded "
        "anew.",
    ),
    _advice(
        r"No S3 objects found|NoSuchKey|NoSuchBucket|ManifestInvalid",
        FailureClass.MISSING_DATA,
        "Check the URIs given to fit(): the bucket is in the job's region, objects exist below the prefix, and "
        "the role may list them.",
    ),
    _advice(
        r"ecr:\w+|cannot pull (the )?(algorithm )?container|manifest (unknown|for .* not found)|CannotPullContainer"
        r"|(cannot find|could not find|does not exist).*(image|repository)|(image|repository).*not found",
        FailureClass.PLATFORM,
        "Check image_uri: the repository and the tag exist, in a region that the job reaches, and the role may pull "
        "it (ecr:BatchGetImage, ecr:GetDownloadUrlForLayer).",
    ),
    _advice(
        r"kms:\w+|KMS\.|KMSAccessDenied",
        FailureClass.PLATFORM,
        "Allow the role to use the KMS key: kms:Decrypt, kms:GenerateDataKey, and kms:CreateGrant for volumes.",
    ),
    _advice(
        r"ExpiredToken|TokenRefreshRequired|UnauthorizedSSOToken|token .*(has )?expired|RequestExpired",
        FailureClass.PLATFORM,
        "The credentials have expired: log in again (aws sso login), or get new ones.",
    ),
    _advice(
        r"UnrecognizedClient|InvalidClientTokenId|InvalidAccessKeyId|SignatureDoesNotMatch|InvalidSignature",
        FailureClass.PLATFORM,
        "Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE.",
    ),
    _advice(
        r"(artifact|data) (upload|download) failed.*(AccessDenied|Access Denied|\b403\b)|s3:\w+",
        FailureClass.STORAGE,
        "Allow the role of the job s3:GetObject and s3:ListBucket on its inputs, s3:PutObject on its outputs, and "
        "the use of the buckets' KMS keys.",
    ),
    _advice(
        r"AccessDenied|not authorized to perform",
        FailureClass.PLATFORM,
        "Ask for the permission named above, or use other credentials: AWS_PROFILE.",
    ),
    _advice(
        r"instance type with more memory|OutOfMemory|out of memory",
        FailureClass.OUT_OF_MEMORY,
        "Use a smaller batch, or an instance type with more memory.",
    ),
    _advice(
        r"No space left on device|disk .*full|not enough (disk )?space",
        FailureClass.DISK_FULL,
        "Use a larger volume_size, or write less.",
    ),
    _advice(
        r"Throttling|Rate exceeded|TooManyRequests",
        FailureClass.PLATFORM,
        "AWS is asked too often by this account: try again in a minute.",
    ),
    _advice(
        r"InternalServerError|InternalFailure|internal (server )?error|ServiceUnavailable",
        FailureClass.PLATFORM,
        "Something failed inside AWS: submit the job again; max_retry_attempts does it by itself.",
    ),
)
"""The first that fits is the one."""


def find_advice(text: str) -> Advice | None:
    return next((advice for advice in KNOWN if advice.pattern.search(text)), None)
