"""S3 error responses that the embedded server never sends; the others are in tests/integration/storage."""

from __future__ import annotations

import pytest

from cloudtrain.errors import AccessDenied, NotFound, StorageError, Unreachable
from cloudtrain.storage.errors import from_response, is_transient


@pytest.mark.parametrize(
    ("code", "status", "kind", "hint"),
    [
        ("NoSuchKey", 404, NotFound, ""),
        ("NoSuchBucket", 404, NotFound, "Create it"),
        ("ExpiredToken", 400, AccessDenied, "AWS_PROFILE"),
        ("RequestTimeTooSkewed", 403, Unreachable, "clock"),
        ("AccessDenied", 403, AccessDenied, "AWS_PROFILE"),
        ("403", 403, AccessDenied, "AWS_PROFILE"),
        ("PermanentRedirect", 301, StorageError, "AWS_DEFAULT_REGION"),
        ("301", 301, StorageError, "AWS_DEFAULT_REGION"),
        ("AuthorizationHeaderMalformed", 400, StorageError, "AWS_DEFAULT_REGION"),
        ("SlowDown", 503, Unreachable, "server"),
        ("InternalError", 500, Unreachable, "server"),
        ("InvalidArgument", 400, StorageError, ""),
    ],
)
def test_error_responses(code: str, status: int, kind: type[StorageError], hint: str) -> None:
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error = from_response(response, "s3://bucket/key")
    assert type(error) is kind
    assert "s3://bucket/key" in error.message
    assert hint in error.hint


@pytest.mark.parametrize("code", ["AccessDenied", "QuotaExceeded"])
def test_a_refusal_has_a_reason(code: str) -> None:
    """AWS names the user, the action and the policy."""
    said = "User: me is not authorized to perform: s3:PutObject"
    response = {"Error": {"Code": code, "Message": said}, "ResponseMetadata": {"HTTPStatusCode": 403}}
    assert from_response(response, "s3://bucket/key").message == f"s3://bucket/key: access denied: {said}"


def test_a_refusal_without_a_reason() -> None:
    response = {"Error": {"Code": "403", "Message": "Forbidden"}, "ResponseMetadata": {"HTTPStatusCode": 403}}
    assert from_response(response, "s3://bucket/key").message == "s3://bucket/key: access denied"


def test_a_clock_that_is_wrong_for_a_while_does_not_end_a_transfer() -> None:
    assert is_transient("RequestTimeTooSkewed", 403)
    assert not is_transient("SignatureDoesNotMatch", 403)
