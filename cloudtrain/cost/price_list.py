"""AWS's Price List, and the user's copy of its prices of SageMaker training, each of which is valid for 30 days.

https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from cloudtrain._system.files import read_regular
from cloudtrain.contract.documents import is_number, parse_json
from cloudtrain.cost.prices import PriceRow, is_price, sagemaker_row
from cloudtrain.errors import PlatformError, StorageError
from cloudtrain.storage import state_home
from cloudtrain.storage.atomic import write_file

if TYPE_CHECKING:
    from cloudtrain.aws.aws import Aws

SERVICE_REGION = "us-east-1"
"""The region of the service, which has the prices of all regions."""
KNOWN_SECONDS = 30 * 86400.0
UNKNOWN_SECONDS = 86400.0
"""The time before a price that is not in the Price List is requested again."""

LARGEST = 4 << 20
"""The most bytes of the copy that are read, for about 60,000 prices."""
CLOCKS_APART = 3600.0
"""A price whose request time is further in the future than this is discarded. It would never be requested again."""

Copy = dict[str, tuple["float | None", float]]
"""For each ``region/instance type``, the price, or None if it is not in the Price List, and the time of the request."""


def read_copy() -> list[PriceRow]:
    """The rows of the copy; none if the file is missing or damaged, or is not a regular file."""
    rows = []
    for key, (dollars, at) in _read().items():
        region, _, kind = key.partition("/")
        if dollars is not None:
            date = time.strftime("%Y-%m-%d", time.gmtime(at))
            rows.append(sagemaker_row(region, kind, dollars, source="AWS Price List", date=date))
    return rows


def refresh(aws: Aws, now: float | None = None) -> list[PriceRow]:
    """Copy the prices of all instance types in the region of ``aws``, and return their rows.

    Raises PlatformError if AWS does not answer or denies access, StorageError or OSError if they cannot be stored.
    """
    now = time.time() if now is None else now
    prices = find_prices(_products(aws, "Train:ml.", attempts=3))
    _write({**_read(), **{f"{aws.region}/{kind}": (dollars, now) for kind, dollars in prices.items()}})
    return [row for row in read_copy() if row.where.region == aws.region]


def hourly_price(instance_type: str, aws: Aws, now: float | None = None) -> float | None:
    """The on-demand price of a training instance in the region of ``aws``; None if it is unknown. Never raises."""
    now = time.time() if now is None else now
    known, key = _read(), f"{aws.region}/{instance_type}"
    price, asked_at = known.get(key, (None, float("-inf")))
    if now - asked_at < (UNKNOWN_SECONDS if price is None else KNOWN_SECONDS):
        return price
    try:
        price = find_prices(_products(aws, f"Train:{instance_type}", attempts=1)).get(instance_type)
    except PlatformError:
        price = None
    with contextlib.suppress(StorageError, OSError):  # the price is requested again next time
        _write({**known, key: (price, now)})
    return price


def find_prices(products: Iterable[str]) -> dict[str, float]:
    """The on-demand price per hour of each training instance type in ``products``, JSON items of the Price List.

    A product without a price in US dollars is left out.
    """
    found = {}
    for product in map(json.loads, products):
        kind = product["product"]["attributes"].get("usagetype", "")  # USE1-Train:ml.m5.large
        usage, _, instance_type = kind.partition(":")
        if usage.rpartition("-")[2] != "Train":
            continue
        for offer in product["terms"].get("OnDemand", {}).values():
            for dimension in offer["priceDimensions"].values():
                dollars = float(dimension["pricePerUnit"].get("USD", "nan"))
                if is_price(dollars):
                    found[instance_type] = dollars
    return found


def _products(aws: Aws, usage: str, attempts: int) -> list[str]:
    from cloudtrain.aws.errors import aws_errors

    filters = {"TERM_MATCH": ("regionCode", aws.region), "CONTAINS": ("usagetype", usage)}
    with aws_errors("the price"):
        pages = aws.client("pricing", region=SERVICE_REGION, attempts=attempts).get_paginator("get_products")
        answer = pages.paginate(
            ServiceCode="AmazonSageMaker",
            Filters=[
                {"Type": kind, "Field": field, "Value": value} for kind, (field, value) in filters.items()
            ],
        )
        return [product for page in answer for product in page["PriceList"]]


def _read() -> Copy:
    """The copy, without damaged prices, which count as unknown."""
    try:
        found = parse_json(read_regular(state_home() / "prices.json", LARGEST))
    except (StorageError, OSError, ValueError):
        return {}
    latest = time.time() + CLOCKS_APART
    rows = found.items() if isinstance(found, dict) else ()
    return {key: (row[0], row[1]) for key, row in rows if _is_whole(row, latest)}


def _is_whole(row: Any, latest: float) -> bool:
    if not isinstance(row, Sequence) or len(row) != 2 or not is_number(row[1]):
        return False
    return (row[0] is None or is_price(row[0])) and 0 <= row[1] <= latest


def _write(copy: Copy) -> None:
    write_file(state_home() / "prices.json", json.dumps(copy).encode())
