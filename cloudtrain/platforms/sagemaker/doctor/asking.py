"""Requests of checks to AWS: they share responses, and a denied request is not a failure."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import error_code
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.checks import Check, CheckStatus, Finding

DENIED = {
    *("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "UnauthorizedException"),
    *("403", "Forbidden", "AuthorizationError", "OptInRequired"),
}
"""Error codes of services for a request that the caller is not allowed to make."""

ATTEMPTS = 3
"""The number of attempts of a request. It is small, because the user waits."""


class Account:
    """The AWS account of the checks. Threads share it, so that facts that several checks need are requested once."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self._lock = threading.RLock()

    def client(self, service: str) -> Any:
        return self._aws.client(service, attempts=ATTEMPTS)

    @property
    def region(self) -> str:
        return self._aws.region

    @property
    def partition(self) -> str:
        return self._aws.partition

    @property
    def default_bucket(self) -> str:
        with self._lock:
            return self._aws.default_bucket

    @property
    def caller(self) -> str:
        """The ARN of the caller."""
        with self._lock:
            return self._caller

    @cached_property
    def _caller(self) -> str:
        return str(self.client("sts").get_caller_identity()["Arn"])


def asked(check: Check) -> Check:
    """``check``, but with the status ``UNKNOWN`` if AWS denies or does not answer its requests."""

    def run() -> Finding:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        try:
            return check()
        except ClientError as error:
            if error_code(error) in DENIED:
                return Finding(CheckStatus.UNKNOWN, f"you may not call {error.operation_name}")
            return Finding(CheckStatus.UNKNOWN, str(error))
        except (BotoCoreError, ResponseParserError) as error:
            return Finding(CheckStatus.UNKNOWN, " ".join(str(error).split()))
        except PlatformError as error:  # no credentials or no region, which another check reports
            return Finding(CheckStatus.UNKNOWN, error.message)

    return run
