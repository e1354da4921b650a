"""How uploads to S3 request encryption.

Without a header, S3 encrypts by the bucket's settings. The SageMaker SDK requests ``aws:kms`` in every upload of a
source, so that buckets which require another encryption refuse it. cloudtrain requests the key that the job names, and
otherwise sends a header only if S3 refuses an upload without one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

DEMANDED = ({"ServerSideEncryption": "aws:kms"}, {"ServerSideEncryption": "AES256"})
"""The upload arguments that bucket policies require, according to AWS's examples of such policies."""

_NOT_BY_A_POLICY = re.compile("because no .* policy allows")
"""Matches S3's message if the caller lacks the permission, whichever encryption the upload requests."""


def upload_key(uri: str, output_path: str | None, kms_key: str | None) -> str | None:
    """The KMS key for an upload to ``uri``: that of the job's outputs, in the same bucket, as in the SageMaker SDK."""
    same_bucket = output_path is not None and uri.split("/")[2:3] == output_path.split("/")[2:3]
    return kms_key if kms_key and same_bucket else None


def with_key(kms_key: str) -> dict[str, str]:
    """The arguments of an upload that is encrypted with ``kms_key``: its ID, its ARN or an alias."""
    return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key}


def may_demand_encryption(response: Mapping[str, Any], operation: str) -> bool:
    """Whether a bucket's policy may have refused an upload because of its encryption.

    Args:
        response: S3's error response, which does not name the policy statement that denied the request.
    """
    error = response.get("Error", {})
    return (
        operation in ("PutObject", "CreateMultipartUpload")
        and error.get("Code") == "AccessDenied"
        and not _NOT_BY_A_POLICY.search(error.get("Message", ""))
    )
