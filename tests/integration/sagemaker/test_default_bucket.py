"""The default bucket, which two clients may create at the same moment."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse

from cloudtrain.aws.aws import Aws
from cloudtrain.platforms.sagemaker import _uploads
from cloudtrain.platforms.sagemaker._uploads import make_default_bucket

ABORTED = (
    b"<Error><Code>OperationAborted</Code><Message>A conflicting conditional operation is currently in progress "
    b"against this resource. Please try again.</Message></Error>"
)


class _Raw:
    """The body of a response, as botocore reads it."""

    def stream(self, *_: Any, **__: Any) -> Any:
        yield ABORTED


def test_a_bucket_that_another_client_creates_is_waited_for(
    moto: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_uploads, "_PAUSES", (0.01, 0.01))
    session = boto3.Session()
    refusals = [409, 409]

    def refuse(request: Any, **_: Any) -> AWSResponse | None:
        return AWSResponse(request.url, refusals.pop(), {}, _Raw()) if refusals else None

    session.events.register("before-send.s3.CreateBucket", refuse)
    aws = Aws.of(session)
    assert make_default_bucket(aws, f"s3://{aws.default_bucket}/x")
    assert refusals == []
    assert boto3.client("s3").head_bucket(Bucket=aws.default_bucket)
