"""How uploads to S3 request encryption.

Without a header, S3 encrypts by the bucket's settings. The SageMaker SDK requests ``aws:kms`` in every upload of a
source, so that it may be refused by buckets that take any other. cloudtrain requests a key that the job names, and
otherwise only where S3 refuses an upload without a request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

DEMANDED = ({"ServerSideEncryption": "aws:kms"}, {"ServerSideEncryption": "AES256"})
"""The arguments of uploads that policies of buckets demand, by AWS's own examples of such policies."""

_NOT_BY_A_POLICY = re.compile("because no .* policy allows")
"""In a message of S3: the caller lacks the permission, regardless of the upload's request."""


def upload_key(uri: str, output_path: str | None, kms_key: str | None) -> str | None:
    """The KMS key for an upload to ``uri``: that of the job's outputs in their bucket, as in the SageMaker SDK."""
    same_bucket = output_path is not None and uri.split("/")[2:3] == output_path.split("/")[2:3]
    return kms_key if kms_key and same_bucket else None


def with_key(kms_key: str) -> dict[str, str]:
    """The arguments of an upload that is encrypted with ``kms_key``: its ID, its ARN or an alias."""
    return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key}


def may_demand_encryption(response: Mapping[str, Any], operation: str) -> bool:
    """Whether a bucket's policy may have refused an upload because of its encryption.

    Args:
        response: of the error of S3, which does not name the statement of a policy that denied the request.
    """
    error = response.get("Error", {})
    return (
        operation in ("PutObject", "CreateMultipartUpload")
        and error.get("Code") == "AccessDenied"
        and not _NOT_BY_A_POLICY.search(error.get("Message", ""))
    )
