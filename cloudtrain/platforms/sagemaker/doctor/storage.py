"""Checks that buckets exist in the job's region, and that inputs are not empty."""

from __future__ import annotations

from cloudtrain.aws.errors import error_code
from cloudtrain.platforms.checks import CheckStatus, Finding
from cloudtrain.platforms.sagemaker.doctor.asking import Account

MISSING = {"404", "NoSuchBucket", "NotFound"}


def check_default_bucket(account: Account) -> Finding:
    return check_bucket(account, account.default_bucket)


def check_bucket(account: Account, bucket: str) -> Finding:
    region = _region(account, bucket)
    if region is None and bucket == account.default_bucket:
        return Finding(CheckStatus.OK, "it is the default bucket, which is created by the first upload")
    if region is None:
        return Finding(
            CheckStatus.FAILED,
            f"there is no bucket {bucket}",
            f"Create it: aws s3 mb s3://{bucket} --region {account.region}",
        )
    if region != account.region:
        return Finding(
            CheckStatus.FAILED,
            f"{bucket} is in {region}, the job would run in {account.region}",
            "Use a bucket in the job's region, or set AWS_DEFAULT_REGION to the bucket's region.",
        )
    return Finding(CheckStatus.OK, f"in {region}")


def check_input(account: Account, uri: str) -> Finding:
    """Check that a channel has at least one object: the job fails without."""
    from botocore.exceptions import ClientError

    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    try:
        found = account.client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1)
    except ClientError as error:
        if error_code(error) not in MISSING:
            raise
        return Finding(CheckStatus.FAILED, f"there is no bucket {bucket}", "Check the URI of the channel.")
    if not found.get("Contents"):
        return Finding(CheckStatus.FAILED, f"there is no object below {uri}", f"Check with: aws s3 ls {uri}")
    return Finding(CheckStatus.OK, uri)


def _region(account: Account, bucket: str) -> str | None:
    """The region of a bucket; None if it does not exist."""
    from botocore.exceptions import ClientError

    try:
        found = account.client("s3").head_bucket(Bucket=bucket)
    except ClientError as error:
        if error_code(error) not in MISSING:
            raise
        return None
    return str(found.get("BucketRegion") or account.region)
