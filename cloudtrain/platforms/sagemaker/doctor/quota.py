"""Checks that the account's quotas allow the instances of the job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cloudtrain.platforms.checks import CheckStatus, Finding
from cloudtrain.platforms.sagemaker.describe import console
from cloudtrain.platforms.sagemaker.doctor.asking import Account

PAGE = "servicequotas/home/services/sagemaker/quotas"


@dataclass(frozen=True)
class Wanted:
    """Instances of one type. ``kind`` is the name of the usage in Service Quotas."""

    instance_type: str
    kind: str
    count: int
    is_needed: bool = True
    """Whether the job fails without them. A warm pool is optional."""

    @property
    def quota_name(self) -> str:
        return f"{self.instance_type} for {self.kind} usage"


def check_quota(account: Account, wanted: Wanted) -> Finding:
    quota = _find(account, wanted.quota_name)
    if quota is None:
        return Finding(
            CheckStatus.WARNING,
            f"{account.region} has no quota {wanted.quota_name!r}",
            "Check the instance type, and that the region has it.",
        )
    value = int(quota["Value"])
    if value >= wanted.count:
        return Finding(
            CheckStatus.OK, f"{value} instances, {wanted.count} needed; running instances are not counted"
        )
    return Finding(
        CheckStatus.FAILED if wanted.is_needed else CheckStatus.WARNING,
        f"the quota {wanted.quota_name!r} is {value}, {wanted.count} needed",
        f"Request an increase: {console(account.region, account.partition)}/{PAGE}/{quota['QuotaCode']}",
    )


def _find(account: Account, name: str) -> dict[str, Any] | None:
    pages = account.client("service-quotas").get_paginator("list_service_quotas")
    for page in pages.paginate(ServiceCode="sagemaker", PaginationConfig={"PageSize": 100}):
        for quota in page["Quotas"]:
            if quota["QuotaName"].lower() == name:
                found: dict[str, Any] = quota
                return found
    return None
