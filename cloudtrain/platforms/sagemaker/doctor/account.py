"""The AWS account that the checks use, and the checks of its credentials, permissions and role.

The checks share responses. A denied request is not a failure.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors, error_code
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.checks import Check, Finding, failed, ok, unknown

DENIED = {
    *("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "UnauthorizedException"),
    *("403", "Forbidden", "AuthorizationError", "OptInRequired"),
}
"""Error codes of services for a request that the caller is not allowed to make."""

ATTEMPTS = 3
"""The number of attempts of a request. It is small because the user is waiting."""


class Account:
    """The AWS account that the checks use. Threads share it, so that facts for several checks are requested once."""

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


def unknown_if_denied(check: Check) -> Check:
    """``check``, but with the status ``UNKNOWN`` if AWS denies or does not answer its requests."""

    def run() -> Finding:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        try:
            return check()
        except ClientError as error:
            if error_code(error) in DENIED:
                return unknown(f"you may not call {error.operation_name}")
            return unknown(str(error))
        except (BotoCoreError, ResponseParserError) as error:
            return unknown(" ".join(str(error).split()))
        except PlatformError as error:  # another check reports missing credentials or a missing region
            return unknown(error.message)

    return run


SERVICE = "sagemaker.amazonaws.com"


def check_credentials(account: Account) -> Finding:
    """Raises PlatformError if there are no credentials, or no region."""
    region = account.region
    with aws_errors("the AWS credentials"):
        return ok(f"{account.caller} in {region}")


def check_permission(account: Account) -> Finding:
    return check_action(account, "sagemaker:CreateTrainingJob")


def check_action(account: Account, action: str) -> Finding:
    """Whether the caller may do ``action`` at all."""
    return _simulate(account, action, "*", {})


def check_role(account: Account, role: str) -> Finding:
    return ok(found["Arn"]) if (found := _role(account, role)) else _no_role(role)


def check_trust(account: Account, role: str) -> Finding:
    found = _role(account, role)
    if not found:
        return _no_role(role)
    if any(_trusts(statement) for statement in _as_list(found["AssumeRolePolicyDocument"]["Statement"])):
        return ok(f"{SERVICE} may assume it")
    return failed(
        f"{SERVICE} may not assume {found['Arn']}",
        f'Add to its trust policy: {{"Effect": "Allow", "Principal": {{"Service": "{SERVICE}"}}, '
        '"Action": "sts:AssumeRole"}',
    )


def check_pass_role(account: Account, role: str) -> Finding:
    found = _role(account, role)
    return (
        _simulate(account, "iam:PassRole", found["Arn"], {"iam:PassedToService": SERVICE})
        if found
        else _no_role(role)
    )


def _role(account: Account, role: str) -> dict[str, Any] | None:
    from botocore.exceptions import ClientError

    try:
        found: dict[str, Any] = account.client("iam").get_role(RoleName=role.rpartition("/")[2])["Role"]
    except ClientError as error:
        if error_code(error) != "NoSuchEntity":
            raise
        return None
    return found


def _no_role(role: str) -> Finding:
    return failed(
        f"there is no role {role}",
        "Set the ARN of a role that SageMaker may assume. To list roles: aws iam list-roles",
    )


def _trusts(statement: Mapping[str, Any]) -> bool:
    """Whether a statement of a trust policy allows SageMaker to assume the role. Conditions are ignored."""
    principal = statement.get("Principal", {})
    services = ["*"] if principal == "*" else _as_list(principal.get("Service", []))
    return (
        statement.get("Effect") == "Allow"
        and not {"sts:AssumeRole", "sts:*", "*"}.isdisjoint(_as_list(statement.get("Action", [])))
        and any(service == "*" or service.startswith(SERVICE) for service in services)
    )


def _simulate(account: Account, action: str, resource: str, context: Mapping[str, str]) -> Finding:
    """Whether IAM's policy simulator, which ignores service control policies, allows the caller ``action``."""
    caller = account.caller
    if caller.endswith(":root"):
        return ok(f"{caller} may do everything")
    if ":assumed-role/" in caller:
        role = _role(account, caller.split("/")[1])
        if not role:
            return unknown(f"the role of {caller} cannot be found")
        caller = role["Arn"]
    answer = account.client("iam").simulate_principal_policy(
        PolicySourceArn=caller,
        ActionNames=[action],
        ResourceArns=[resource],
        ContextEntries=[
            {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"}
            for key, value in context.items()
        ],
    )
    if all(result["EvalDecision"] == "allowed" for result in answer["EvaluationResults"]):
        return ok(f"you may {action}")
    on = "" if resource == "*" else f" on {resource}"
    return failed(f"{caller} may not {action}{on}", f"Ask for a policy that allows {action}{on}.")


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
