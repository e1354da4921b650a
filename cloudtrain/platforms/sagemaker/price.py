"""The cost of a job, from AWS's Price List, which is cached on this machine for a month.

https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors
from cloudtrain.errors import PlatformError, StorageError
from cloudtrain.platforms.sagemaker.training_job import instance_groups, job_status
from cloudtrain.storage import state_home
from cloudtrain.storage.atomic import write_file

SERVICE_REGION = "us-east-1"
"""The region of the service that has the prices of all regions."""
KNOWN_SECONDS = 30 * 86400.0
UNKNOWN_SECONDS = 86400.0
"""The time before a price that is not in the Price List is requested again."""
HOUR = 3600.0

HourlyPrice = Callable[[str], "float | None"]
"""The price of an instance type in US dollars per hour."""


def cost_of(answer: Mapping[str, Any], price: HourlyPrice) -> float | None:
    """The cost of the instances of a job that has ended, in US dollars. Spot instances reduce the billable time.

    Args:
        answer: SageMaker's response to DescribeTrainingJob.
    """
    billable = answer.get("BillableTimeInSeconds")
    if billable is None or not job_status(answer).is_final:
        return None
    groups = instance_groups(answer["ResourceConfig"])
    total = 0.0
    for group in groups:
        dollars = price(group["InstanceType"])
        if dollars is None:
            return None
        total += dollars * group["InstanceCount"] * billable / HOUR
    return total if groups else None


def hourly_price(instance_type: str, aws: Aws, now: float | None = None) -> float | None:
    """The on-demand price of a training instance in the region; None if it is unknown. Never raises an error."""
    now = time.time() if now is None else now
    try:
        path = state_home() / "prices.json"
        known: dict[str, list[Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (StorageError, OSError, ValueError):
        return _ask(instance_type, aws)
    key = f"{aws.region}/{instance_type}"
    price, asked_at = known.get(key, (None, float("-inf")))
    if now - asked_at < (UNKNOWN_SECONDS if price is None else KNOWN_SECONDS):
        return price
    price = _ask(instance_type, aws)
    with contextlib.suppress(OSError):  # the price is requested again next time
        write_file(path, json.dumps({**known, key: [price, now]}).encode())
    return price


def _ask(instance_type: str, aws: Aws) -> float | None:
    filters = {"TERM_MATCH": ("regionCode", aws.region), "CONTAINS": ("usagetype", f"Train:{instance_type}")}
    try:
        with aws_errors("the price"):
            answer = aws.client("pricing", region=SERVICE_REGION, attempts=1).get_products(
                ServiceCode="AmazonSageMaker",
                Filters=[
                    {"Type": kind, "Field": field, "Value": value} for kind, (field, value) in filters.items()
                ],
            )
    except PlatformError:
        return None
    return find_price(answer["PriceList"], instance_type)


def find_price(products: Iterable[str], instance_type: str) -> float | None:
    """The on-demand price per hour in ``products``, which are items of the Price List in JSON."""
    for product in map(json.loads, products):
        kind = product["product"]["attributes"].get("usagetype", "")  # USE1-Train:ml.m5.large
        if kind.rpartition("-")[2] != f"Train:{instance_type}":
            continue
        for offer in product["terms"].get("OnDemand", {}).values():
            for dimension in offer["priceDimensions"].values():
                dollars = dimension["pricePerUnit"].get("USD")
                if dollars is not None:
                    return float(dollars)
    return None
