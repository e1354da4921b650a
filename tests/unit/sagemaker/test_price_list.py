"""The cost of a training job, and the prices in AWS's Price List."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from botocore.stub import ANY, Stubber
from described_answers import answer

from cloudtrain.aws.aws import Aws
from cloudtrain.cost import Cost, Price, Where, find_price, known_prices
from cloudtrain.cost.price_list import find_prices, hourly_price, read_copy, refresh
from cloudtrain.cost.terms import terms_text
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.sagemaker.cost import COST_TERMS, cost_of
from cloudtrain.spec import CostTerms
from cloudtrain.storage import state_home

DONE = ("Training", 0), ("Completed", 9)
DAY = 86400.0


def product(usage: str, dollars: str, currency: str = "USD") -> str:
    dimension = {"unit": "Hrs", "pricePerUnit": {currency: dollars}}
    return json.dumps(
        {
            "product": {
                "productFamily": "ML Instance",
                "attributes": {"usagetype": usage, "regionCode": "us-east-1"},
            },
            "serviceCode": "AmazonSageMaker",
            "terms": {
                "OnDemand": {"SKU.JRTCKXETXF": {"priceDimensions": {"SKU.JRTCKXETXF.6YS6EN2CT7": dimension}}}
            },
        }
    )


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Aws:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    return Aws()


def test_the_price_is_that_of_training_on_that_very_type() -> None:
    products = [
        product("USE1-Train:ml.m5.4xlarge", "0.922"),
        product("USE1-Host:ml.m5.xlarge", "9"),
        product("USE1-Train:ml.m5.xlarge", "0.23"),
    ]
    assert find_prices(products) == {"ml.m5.4xlarge": 0.922, "ml.m5.xlarge": 0.23}
    fee = product("USE1-TrainingPlanUpfrontFee:ml.p4d.24xlarge", "13.57")
    unusable = [
        product("CNN1-Train:ml.m5.xlarge", "2", "CNY"),
        product("USE1-Train:ml.m5.xlarge", "NaN"),
        fee,
    ]
    assert find_prices(unusable) == {}


def test_a_refreshed_price_goes_before_that_of_the_package(aws: Aws) -> None:
    client = aws.client("pricing", region="us-east-1", attempts=3)
    place = Where("sagemaker", region="eu-west-1", node_type="ml.g5.xlarge")
    with Stubber(client) as stubber:
        first = {"PriceList": [product("EU-Train:ml.g5.xlarge", "1.6")], "NextToken": "2"}
        stubber.add_response("get_products", first, {"ServiceCode": "AmazonSageMaker", "Filters": ANY})
        second = {"ServiceCode": "AmazonSageMaker", "Filters": ANY, "NextToken": "2"}
        stubber.add_response(
            "get_products", {"PriceList": [product("EU-Train:ml.p5.48xlarge", "70")]}, second
        )
        assert [row.price.amount for row in refresh(aws, now=1790000000.0)] == [1.6, 70.0]
        price = find_price(known_prices(), place)
        assert price is not None
        assert (price.amount, price.date, price.source) == (1.6, "2026-09-21", "AWS Price List")
        stubber.add_client_error("get_products", "AccessDeniedException")
        with pytest.raises(PlatformError, match="the price"):
            refresh(aws)
    assert find_price(known_prices(), place) == price


@pytest.mark.parametrize(
    "row",
    [
        "[NaN, 1]",
        "[Infinity, 1]",
        "[-3, 1]",
        "[0, 1]",
        "[1e300, 1]",
        "[true, 1]",
        '["1.5", 1]',
        "[[1.5], 1]",
        "[1.5, NaN]",
        "[1.5, 1e300]",
        "[1.5, -1e20]",
        "[1.5, 9999999999]",
        '[1.5, "now"]',
        "[1.5]",
        "1.5",
        "{}",
    ],
)
def test_a_damaged_row_of_the_copy_is_unknown(row: str) -> None:
    copy = state_home() / "prices.json"
    copy.write_text(f'{{"eu-north-1/ml.g5.xlarge": {row}, "eu-north-1/ml.g6.xlarge": [1.5, 1790000000]}}')
    [found] = read_copy()
    assert (found.where.node_type, found.price.amount) == ("ml.g6.xlarge", 1.5)


@pytest.mark.parametrize(
    "text", ["", "[", "[1]", "null", "[" * 100_000, '{"a": ' * 100_000, "\xff", "x" * (5 << 20)]
)
def test_a_damaged_copy_is_none(text: str) -> None:
    (state_home() / "prices.json").write_bytes(text.encode("latin-1"))
    assert read_copy() == []


def test_a_copy_that_is_not_a_file_of_this_folder_is_none(tmp_path: Path, aws: Aws) -> None:
    copy, other = state_home() / "prices.json", tmp_path / "of-someone-else"
    other.write_text('{"eu-west-1/ml.g5.xlarge": [0.01, 1790000000]}')
    copy.symlink_to(other)
    assert read_copy() == []
    with Stubber(aws.client("pricing", region="us-east-1", attempts=1)) as stubber:
        stubber.add_response("get_products", {"PriceList": [product("EU-Train:ml.g5.xlarge", "1.6")]})
        assert hourly_price("ml.g5.xlarge", aws) == 1.6
    assert not copy.is_symlink() and "0.01" in other.read_text()
    copy.unlink()
    os.mkfifo(copy)
    assert read_copy() == []


def priced(dollars: float) -> Price:
    return Price(dollars, "node_hour", source="a table", date="2026-10-01")


def test_all_instances_cost_what_is_billable() -> None:
    response = answer("Completed", *DONE, BillableTimeInSeconds=1800)
    cost = cost_of(response, {"ml.m5.xlarge": priced(0.25)}.get)
    assert cost is not None
    assert cost.amount == pytest.approx(0.25)  # half an hour of two
    assert cost.line() == "about $0.25; price: a table of 2026-10-01"


def test_the_frozen_price_goes_before_that_of_today() -> None:
    terms = CostTerms(9.0, "EUR", "the contract", "2026-01-01", cap="max_cost of 50 EUR", cap_seconds=9)
    response = answer("Completed", *DONE, BillableTimeInSeconds=1800)
    response["Environment"] = {COST_TERMS: terms_text(terms)}
    cost = cost_of(response, {"ml.m5.xlarge": priced(0.25)}.get)
    assert cost == Cost(4.5, "EUR", "the contract", "2026-01-01", "max_cost of 50 EUR")
    prices = ('"much"', '"2"', "true", "-1", "0", "NaN", "Infinity", "1e300", "[1]")
    for damaged in ("[", "[]", *(f'{{"per_hour": {price}}}' for price in prices)):
        response["Environment"] = {COST_TERMS: damaged}
        cost = cost_of(response, {"ml.m5.xlarge": priced(0.25)}.get)
        assert cost is not None and cost.amount == pytest.approx(0.25), damaged


def test_groups_are_added() -> None:
    groups = [
        {"InstanceGroupName": "a", "InstanceType": "ml.a", "InstanceCount": 2},
        {"InstanceGroupName": "b", "InstanceType": "ml.b", "InstanceCount": 1},
    ]
    response = answer("Stopped", *DONE[:1], ("Stopped", 9), BillableTimeInSeconds=3600)
    response["ResourceConfig"] = {"InstanceGroups": groups}
    cost = cost_of(response, {"ml.a": priced(1.0), "ml.b": priced(10.0)}.get)
    assert cost is not None and cost.amount == pytest.approx(12.0)
    assert cost_of(response, {"ml.a": priced(1.0)}.get) is None


def test_while_a_job_runs_its_time_so_far_counts_except_on_spot_instances() -> None:
    response = answer("InProgress", *DONE[:1])
    response["TrainingStartTime"] = datetime.now(timezone.utc) - timedelta(hours=1)
    cost = cost_of(response, {"ml.m5.xlarge": priced(0.25)}.get)
    assert cost is not None and cost.amount == pytest.approx(0.5, rel=0.01)
    assert cost_of({**response, "EnableManagedSpotTraining": True}, {"ml.m5.xlarge": priced(1)}.get) is None


@pytest.mark.parametrize(
    "response",
    [answer("Completed", *DONE), answer("InProgress", *DONE[:1], BillableTimeInSeconds=60)],
    ids=["no-billable-time", "not-started"],
)
def test_unknown_values_are_not_guessed(response: dict[str, Any]) -> None:
    response.pop("TrainingStartTime", None)
    assert cost_of(response, {"ml.m5.xlarge": priced(0.25)}.get) is None


def test_a_price_is_fetched_once_a_month(aws: Aws) -> None:
    client = aws.client("pricing", region="us-east-1", attempts=1)
    with Stubber(client) as stubber:
        stubber.add_response(
            "get_products",
            {"PriceList": [product("EU-Train:ml.m5.xlarge", "0.257")]},
            {"ServiceCode": "AmazonSageMaker", "Filters": ANY},
        )
        assert hourly_price("ml.m5.xlarge", aws, now=0) == 0.257
        assert hourly_price("ml.m5.xlarge", aws, now=29 * DAY) == 0.257
        stubber.assert_no_pending_responses()
        stubber.add_response("get_products", {"PriceList": [product("EU-Train:ml.m5.xlarge", "0.3")]})
        assert hourly_price("ml.m5.xlarge", aws, now=31 * DAY) == 0.3


def test_a_caller_without_the_right_retries_the_next_day(aws: Aws) -> None:
    client = aws.client("pricing", region="us-east-1", attempts=1)
    with Stubber(client) as stubber:
        stubber.add_client_error("get_products", "AccessDeniedException")
        assert hourly_price("ml.m5.xlarge", aws, now=0) is None
        assert hourly_price("ml.m5.xlarge", aws, now=3600) is None
        stubber.add_response("get_products", {"PriceList": [product("EU-Train:ml.m5.xlarge", "0.257")]})
        assert hourly_price("ml.m5.xlarge", aws, now=2 * DAY) == 0.257
