"""URLs of S3 that anybody can read who has them, for a limited time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudtrain.storage.uri import split_s3_uri

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LONGEST = 604_800
"""In seconds: S3 accepts no URL that is valid for longer than 7 days."""


def presign(uri: str, seconds: int = LONGEST) -> str:
    """A URL that reads ``uri``. It expires with the credentials that sign it, if they are temporary.

    Raises:
        StorageError: there are no credentials, or no such bucket.
    """
    from cloudtrain.storage.errors import s3_errors

    bucket, key = split_s3_uri(uri)
    with s3_errors(uri):
        return str(
            _signer(bucket).generate_presigned_url(
                "get_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=seconds
            )
        )


def _signer(bucket: str) -> S3Client:
    """A client for the bucket's own region: a redirect to another host would make the signature invalid."""
    import boto3
    from botocore.config import Config

    from cloudtrain.storage.client import connection

    shared = connection()
    region = shared.client.meta.region_name
    style = {}
    if shared.is_aws:
        headers = shared.client.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPHeaders"]
        region = headers.get("x-amz-bucket-region", region)
        style = {"addressing_style": "virtual"}
    config = Config(signature_version="s3v4", s3=style)  # type: ignore[arg-type]
    client: S3Client = boto3.Session().client("s3", region_name=region, config=config)
    return client
