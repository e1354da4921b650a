"""How checks ask AWS: whose answers they share, and what a refusal means."""

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
"""Error codes by which the services say that the caller may not ask."""

ATTEMPTS = 3
"""How often a question is asked: the user waits for the answer."""


class Account:
    """An account as the threads of the checks share it: what several want to know is asked once."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self._lock = threading.RLock()

    def client(self, service: str) -> Any:
        return self._aws.client(service, attempts=ATTEMPTS)

    @property
    def region(self) -> str:
        return self._aws.region

    @property
    def default_bucket(self) -> str:
        with self._lock:
            return self._aws.default_bucket

    @property
    def caller(self) -> str:
        """The ARN of who asks."""
        with self._lock:
            return self._caller

    @cached_property
    def _caller(self) -> str:
        return str(self.client("sts").get_caller_identity()["Arn"])


def asked(check: Check) -> Check:
    """``check``, whose questions AWS may leave unanswered: then it is ``UNKNOWN``."""

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
        except PlatformError as error:  # no credentials, no region: what they lack has a check of its own
            return Finding(CheckStatus.UNKNOWN, error.message)

    return run
