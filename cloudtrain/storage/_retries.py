"""Sends S3 requests again: a handler of botocore's event ``needs-retry``, in place of botocore's own policy.

The handler decides for each request, so a large object whose parts are in transfer continues after an outage with the
parts that are missing.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from cloudtrain.errors import CloudtrainError
from cloudtrain.storage.errors import GaveUp, is_transient
from cloudtrain.storage.retry_policy import current

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_KEY = "cloudtrain_outage"


def add_patience(client: S3Client) -> None:
    """Let ``client`` send requests again as long as the `current` patience lasts. Its own retries should be off."""
    handler: Any = _on_answer
    client.meta.events.register_last("needs-retry.s3", handler, unique_id="cloudtrain-patience")


def _on_answer(
    *, response: Any, caught_exception: Exception | None, request_dict: dict[str, Any], **_: Any
) -> float | None:
    """The seconds that botocore should wait before it sends the request again; None: it should not."""
    why = _why(response, caught_exception)
    if why is None:
        current().answered()
        return None
    context = request_dict["context"]
    outage = context.get(_KEY)
    if outage is None:
        outage = context[_KEY] = current().outage(_uri(request_dict))
    if outage.wait(why):
        return 0
    if caught_exception is not None:
        raise GaveUp(why) from caught_exception
    return None


def _why(response: Any, exception: Exception | None) -> str | None:
    """Why the request failed, if it is worth another attempt."""
    if exception is not None:
        return str(exception) if _is_transient_exception(exception) else None
    if response is None:
        return None
    http, parsed = response
    error = parsed.get("Error", {})
    code = str(error.get("Code", "")) if isinstance(error, dict) else ""
    if http.status_code < 300 or not is_transient(code, http.status_code):
        return None
    return f"the server failed ({http.status_code} {code})"


def _is_transient_exception(error: Exception) -> bool:
    from botocore import exceptions

    if isinstance(error, exceptions.SSLError):
        return "CERTIFICATE_VERIFY_FAILED" not in str(error)
    if (
        type(error) is exceptions.HTTPClientError
    ):  # whatever was raised while the request was sent, also by a progress report
        cause = error.kwargs.get("error")
        if isinstance(cause, CloudtrainError):
            return False
        is_lost = isinstance(cause, (builtins.ConnectionError, TimeoutError))
        return is_lost or type(cause).__module__.startswith("urllib3")
    return isinstance(error, (exceptions.ConnectionError, exceptions.HTTPClientError))


def _uri(request: dict[str, Any]) -> str:
    params = request["context"].get("s3_redirect", {}).get("params", {})
    if "Bucket" not in params:
        return str(request.get("url", "S3"))
    return f"s3://{params['Bucket']}/{params.get('Key', params.get('Prefix', ''))}".rstrip("/")
