"""The cost of a job: billable time multiplied by the price in AWS's Price List, or unknown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.stub import ANY, Stubber
from described_answers import answer

from cloudtrain.aws.aws import Aws
from cloudtrain.platforms.sagemaker.price import cost_of, find_price, hourly_price

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
    assert find_price(products, "ml.m5.xlarge") == 0.23
    assert find_price(products, "ml.p5.48xlarge") is None
    assert find_price([product("CNN1-Train:ml.m5.xlarge", "2", "CNY")], "ml.m5.xlarge") is None


def test_all_instances_cost_what_is_billable() -> None:
    response = answer("Completed", *DONE, BillableTimeInSeconds=1800)
    assert cost_of(response, {"ml.m5.xlarge": 0.25}.get) == pytest.approx(0.25)  # half an hour of two


def test_groups_are_added() -> None:
    groups = [
        {"InstanceGroupName": "a", "InstanceType": "ml.a", "InstanceCount": 2},
        {"InstanceGroupName": "b", "InstanceType": "ml.b", "InstanceCount": 1},
    ]
    response = answer("Stopped", *DONE[:1], ("Stopped", 9), BillableTimeInSeconds=3600)
    response["ResourceConfig"] = {"InstanceGroups": groups}
    assert cost_of(response, {"ml.a": 1.0, "ml.b": 10.0}.get) == pytest.approx(12.0)
    assert cost_of(response, {"ml.a": 1.0}.get) is None


@pytest.mark.parametrize(
    "response",
    [answer("Completed", *DONE), answer("InProgress", *DONE[:1], BillableTimeInSeconds=60)],
    ids=["no-billable-time", "not-ended"],
)
def test_unknown_values_are_not_guessed(response: dict[str, Any]) -> None:
    assert cost_of(response, {"ml.m5.xlarge": 0.25}.get) is None


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
