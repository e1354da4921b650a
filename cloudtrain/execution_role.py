"""`get_execution_role`: the default role of jobs, as in the SageMaker SDK."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cloudtrain.aws import Aws, aws_errors
from cloudtrain.config import read_config
from cloudtrain.errors import PlatformError

METADATA = Path("/opt/ml/metadata/resource-metadata.json")
"""The file that describes a SageMaker notebook or Studio space to the programs in it."""

CONSOLE_ROLE = "AmazonSageMaker-ExecutionRole"
"""The start of the names of roles that AWS's console creates, all of which have the path ``service-role``."""

_ASSUMED = re.compile(r"(?P<arn>arn:[\w-]+):sts::(?P<account>\d+):assumed-role/(?P<name>[^/]+)/")


def get_execution_role(sagemaker_session: Any = None, use_default: bool = False) -> str:
    """The ARN of the role for jobs: that of the notebook or Studio space, or of the config file, or your own.

    The first of these: the role of the SageMaker notebook that this code runs in, ``role`` in cloudtrain's config
    file, and the role that your AWS credentials belong to.

    Args:
        sagemaker_session: a `Session`, a ``boto3.Session`` or a ``sagemaker.Session``.
        use_default: not supported: cloudtrain creates no roles.

    Raises:
        PlatformError: your credentials belong to a user and not to a role, or AWS does not answer.
    """
    aws = Aws.of(sagemaker_session)
    role = _notebook_role(aws) or read_config().get("role")
    if role:
        return str(role)
    arn = identity_arn(aws)
    if ":role/" in arn:
        return arn
    asked = ". cloudtrain creates no roles, so use_default has no effect" if use_default else ""
    raise PlatformError(
        f"get_execution_role: your AWS credentials belong to {arn}, which is not a role{asked}",
        hint="Write the role of your jobs into ~/.config/cloudtrain/config.yaml: "
        "role: arn:aws:iam::<account>:role/<name>. Or pass role='...'.",
    )


def identity_arn(aws: Aws) -> str:
    """The ARN of the role of this notebook, or of the user or role that the credentials belong to."""
    role = _notebook_role(aws)
    if role:
        return role
    with aws_errors("the identity of your AWS credentials"):
        arn = str(aws.client("sts").get_caller_identity()["Arn"])
    assumed = _ASSUMED.match(arn)
    if assumed is None:
        return arn
    from botocore.exceptions import BotoCoreError, ClientError

    with suppress(ClientError, BotoCoreError):  # roles often lack the permission to read themselves
        return str(aws.client("iam").get_role(RoleName=assumed["name"])["Role"]["Arn"])
    path = "service-role/" if assumed["name"].startswith(CONSOLE_ROLE) else ""
    return f"{assumed['arn']}:iam::{assumed['account']}:role/{path}{assumed['name']}"


def _notebook_role(aws: Aws) -> str | None:
    """The role of the SageMaker notebook or Studio space that this code runs in; None elsewhere."""
    try:
        metadata = json.loads(METADATA.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(metadata, dict):
        return None
    if metadata.get("ExecutionRoleArn"):
        return str(metadata["ExecutionRoleArn"])
    from botocore.exceptions import BotoCoreError, ClientError

    with suppress(ClientError, BotoCoreError, KeyError):
        return _described_role(aws, metadata)
    return None


def _described_role(aws: Aws, metadata: Mapping[str, Any]) -> str:
    """The role in SageMaker's description of the notebook. Raises botocore's errors, and KeyError if it has no role."""
    client = aws.client("sagemaker")
    if "DomainId" not in metadata:
        return str(
            client.describe_notebook_instance(NotebookInstanceName=metadata["ResourceName"])["RoleArn"]
        )
    domain = metadata["DomainId"]
    if "UserProfileName" in metadata:
        profile = client.describe_user_profile(DomainId=domain, UserProfileName=metadata["UserProfileName"])
        role = profile.get("UserSettings", {}).get("ExecutionRole")
        if role:
            return str(role)
        return str(client.describe_domain(DomainId=domain)["DefaultUserSettings"]["ExecutionRole"])
    settings = client.describe_domain(DomainId=domain)
    return str(settings.get("DefaultSpaceSettings", settings["DefaultUserSettings"])["ExecutionRole"])
