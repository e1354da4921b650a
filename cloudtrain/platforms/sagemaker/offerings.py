"""Searches AWS's offerings of training plans, which reserve instances for some days.

https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_SearchTrainingPlanOfferings.html
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors

TARGETS = ("training-job", "hyperpod-cluster", "endpoint", "studio-apps")


@dataclass(frozen=True)
class Segment:
    """Instances that are reserved for an uninterrupted time."""

    instance_type: str
    instance_count: int
    ultraserver_type: str | None
    ultraserver_count: int | None
    availability_zone: str | None
    starts_at: datetime | None
    ends_at: datetime | None
    hours: float


@dataclass(frozen=True)
class Offering:
    """One training plan that could be reserved. Prices are in ``currency``."""

    id: str
    targets: Sequence[str]
    hours: float
    upfront_fee: float | None
    """The total price, which is due when the plan is reserved."""
    currency: str
    segments: Sequence[Segment]

    @property
    def price_per_hour(self) -> float | None:
        """The price of an hour of all instances."""
        return self._share(self.hours)

    @property
    def price_per_instance_hour(self) -> float | None:
        """The price of an hour of one instance, for comparison with on-demand prices."""
        return self._share(sum(segment.instance_count * segment.hours for segment in self.segments))

    def _share(self, hours: float) -> float | None:
        return round(self.upfront_fee / hours, 4) if self.upfront_fee is not None and hours else None

    def to_dict(self) -> dict[str, Any]:
        """For JSON: times in ISO 8601."""
        record = asdict(self)
        for segment in record["segments"]:
            for name in ("starts_at", "ends_at"):
                segment[name] = segment[name].isoformat() if segment[name] else None
        return {
            **record,
            "price_per_hour": self.price_per_hour,
            "price_per_instance_hour": self.price_per_instance_hour,
        }


def search_offerings(aws: Aws, wanted: Mapping[str, Any], region: str | None = None) -> list[Offering]:
    """The offerings for ``wanted``, the arguments of SearchTrainingPlanOfferings, cheapest instance hour first.

    Args:
        region: overrides the region of ``aws``.

    Raises:
        InvalidJob: AWS does not accept an argument, such as the instance type.
        PlatformError: AWS denies access, or does not respond.
    """
    client = aws.client("sagemaker", region=region)
    with aws_errors(f"training plan offerings in {region or aws.region}"):
        found = client.search_training_plan_offerings(**wanted)["TrainingPlanOfferings"]
    offerings = [_offering(offering) for offering in found]
    return sorted(offerings, key=lambda offering: (_or_last(offering.price_per_instance_hour), offering.id))


def _offering(found: Mapping[str, Any]) -> Offering:
    segments = [_segment(segment) for segment in found.get("ReservedCapacityOfferings", ())]
    fee = None
    with suppress(ValueError):
        fee = float(found["UpfrontFee"]) if "UpfrontFee" in found else None
        fee = fee if fee is not None and math.isfinite(fee) else None  # JSON has no NaN
    return Offering(
        id=found["TrainingPlanOfferingId"],
        targets=found["TargetResources"],
        hours=_hours(found) or sum(segment.hours for segment in segments),
        upfront_fee=fee,
        currency=found.get("CurrencyCode", "USD"),
        segments=segments,
    )


def _segment(found: Mapping[str, Any]) -> Segment:
    start, end = found.get("StartTime"), found.get("EndTime")
    between = (end - start).total_seconds() / 3600 if start and end else 0.0
    return Segment(
        instance_type=found["InstanceType"],
        instance_count=found["InstanceCount"],
        ultraserver_type=found.get("UltraServerType"),
        ultraserver_count=found.get("UltraServerCount"),
        availability_zone=found.get("AvailabilityZone"),
        starts_at=start,
        ends_at=end,
        hours=_hours(found) or round(between, 2),
    )


def _hours(found: Mapping[str, Any]) -> float:
    return float(round(found.get("DurationHours", 0) + found.get("DurationMinutes", 0) / 60, 2))


def _or_last(price: float | None) -> float:
    return float("inf") if price is None else price
