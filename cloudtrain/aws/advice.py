"""Hints for errors of AWS and for a job's FailureReason."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cloudtrain.contract import FailureClass


@dataclass(frozen=True)
class Advice:
    """The failure class and the hint for texts that contain ``pattern``."""

    pattern: re.Pattern[str]
    failure_class: FailureClass
    hint: str


def _advice(pattern: str, failure_class: FailureClass, hint: str) -> Advice:
    return Advice(re.compile(pattern, re.IGNORECASE | re.DOTALL), failure_class, hint)


KNOWN = (
    _advice(
        r"JobQueue\b.*(not found|does not exist)",
        FailureClass.PLATFORM,
        "Check platform_options.job_queue: its name, the account and the region. cloudtrain doctor lists the queues "
        "that take training jobs.",
    ),
    _advice(
        r"JobQueue\b.*DISABLED",
        FailureClass.PLATFORM,
        "Enable it: aws batch update-job-queue --state ENABLED --job-queue NAME. Or use another queue.",
    ),
    _advice(
        r"shareIdentifier|share identifier",
        FailureClass.PLATFORM,
        "Set platform_options.share_identifier for a queue with a fair-share policy; leave it out for any other.",
    ),
    _advice(
        r"quotaShare|quota share",
        FailureClass.PLATFORM,
        "Set platform_options.quota_share_name to a quota share of the queue; leave it out for a queue without any.",
    ),
    _advice(
        r"ResourceLimitExceeded|account-level service limit|exceeded .*quota",
        FailureClass.PLATFORM,
        "Request an increase of the quota named above (AWS console, Service Quotas, Amazon SageMaker), use another "
        "instance_type, or wait until other jobs have ended.",
    ),
    _advice(
        r"CapacityError|insufficient capacity|unable to provision requested ML compute capacity",
        FailureClass.PLATFORM,
        "AWS has no free instances of this type: list others in instance_preferences, use another instance_type or "
        "region, or reserve instances with a training_plan (cloudtrain sagemaker offerings). With "
        "platform_options.capacity_retries, cloudtrain submits the job again while you wait; max_retry_attempts is for "
        "internal errors of AWS only.",
    ),
    _advice(
        r"iam:PassRole",
        FailureClass.PLATFORM,
        "Allow your user iam:PassRole on the role of the job, or use a role that you may pass.",
    ),
    _advice(
        r"(could not|cannot|unable to) assume (the )?role|role .*(does not exist|is invalid)|invalid role",
        FailureClass.PLATFORM,
        "Check that the role exists and that its trust policy allows sagemaker.amazonaws.com to assume it.",
    ),
    _advice(
        r"S3 VPC endpoint|route to (an )?S3|Connect timeout on endpoint URL: .*\.s3\.",
        FailureClass.STORAGE,
        "Add a gateway endpoint for S3 (or a NAT gateway) to the route tables of the subnets, and allow it in the "
        "security groups.",
    ),
    _advice(
        r"BucketRegionError|PermanentRedirect|IllegalLocationConstraint|AuthorizationHeaderMalformed"
        r"|bucket .*(must be|is) in (the same|another|this) region",
        FailureClass.STORAGE,
        "Use a bucket in the job's region, or set AWS_DEFAULT_REGION to the bucket's region.",
    ),
    _advice(
        r"No S3 objects found.*/runtime/[0-9a-f]{64}",
        FailureClass.STORAGE,
        "cloudtrain's runtime was deleted from the bucket. Submit the job again: that uploads it again.",
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
        "Check image_uri: the repository and the tag exist, in a region that the job can reach, and the role may pull "
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
        "access to the buckets' KMS keys.",
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
        "AWS throttles the requests of this account: try again in a minute.",
    ),
    _advice(
        r"InternalServerError|InternalFailure|internal (server )?error|ServiceUnavailable",
        FailureClass.PLATFORM,
        "AWS had an internal error: submit the job again. max_retry_attempts does so automatically.",
    ),
)
"""In order of precedence."""


def find_advice(text: str) -> Advice | None:
    return next((advice for advice in KNOWN if advice.pattern.search(text)), None)
