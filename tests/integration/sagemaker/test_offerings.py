"""``cloudtrain sagemaker offerings``: what AWS offers to reserve, by the scripted service."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pytest
from click.testing import CliRunner, Result
from service import SageMakerService, ServiceError

from cloudtrain.cli import cli
from cloudtrain.errors import InvalidJob, PlatformError

START = datetime(2026, 12, 1, 11, 30, tzinfo=timezone.utc)
HOUR = 3600.0


def capacity(start: float, hours: int, **more: Any) -> dict[str, Any]:
    return {
        "InstanceType": "ml.p5.48xlarge",
        "InstanceCount": 2,
        "AvailabilityZone": "us-east-1a",
        "DurationHours": hours,
        "DurationMinutes": 0,
        "StartTime": START.timestamp() + start * HOUR,
        "EndTime": START.timestamp() + (start + hours) * HOUR,
        **more,
    }


def offering(name: str, fee: str | None, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "TrainingPlanOfferingId": name,
        "TargetResources": ["training-job"],
        "DurationHours": sum(part["DurationHours"] for part in parts),
        **({"UpfrontFee": fee, "CurrencyCode": "USD"} if fee is not None else {}),
        "ReservedCapacityOfferings": list(parts),
        **more,
    }


DEAR = offering("tpo-dear", "6000.00", capacity(0, 48))
CHEAP = offering("tpo-cheap", "4800.50", capacity(24, 24), capacity(72, 24, AvailabilityZone="us-east-1b"))


def run(*arguments: str) -> Result:
    return CliRunner(env={"TZ": "UTC"}).invoke(cli, ["sagemaker", "offerings", *arguments])


@pytest.fixture(autouse=True)
def _use_service(platform: object) -> None:
    """All tests ask the scripted service."""


def test_the_search_is_rendered_as_requested(service: SageMakerService) -> None:
    arguments = "--instance-type ml.p5.48xlarge --instance-count 2 --hours 48 --start-after 2026-12-01T10:00Z"
    assert run(*arguments.split(), "--end-before", "2026-12-20T00:00+00:00").exit_code == 0
    assert service.calls == [
        (
            "SearchTrainingPlanOfferings",
            {
                "InstanceType": "ml.p5.48xlarge",
                "InstanceCount": 2,
                "DurationHours": 48,
                "StartTimeAfter": datetime(2026, 12, 1, 10, tzinfo=timezone.utc).timestamp(),
                "EndTimeBefore": datetime(2026, 12, 20, tzinfo=timezone.utc).timestamp(),
                "TargetResources": ["training-job"],
            },
        )
    ]


def test_the_table_has_prices_and_times_with_the_cheapest_first(service: SageMakerService) -> None:
    service.offerings = [DEAR, CHEAP]
    shown = run("--instance-type", "ml.p5.48xlarge")
    assert service.calls[0][1]["InstanceCount"] == 1
    local = [START.astimezone(), datetime.fromtimestamp(START.timestamp() + 24 * HOUR)]
    heading, cheap, second, dear = shown.stdout.splitlines()
    assert heading.split() == [
        "OFFERING",
        "INSTANCES",
        "ZONE",
        "START",
        "END",
        "HOURS",
        "PER",
        "HOUR",
        "PER",
        "INSTANCE",
        "UPFRONT",
    ]
    assert cheap.split()[:5] == ["tpo-cheap", "2", "x", "ml.p5.48xlarge", "us-east-1a"]
    assert f"{local[1]:%Y-%m-%d %H:%M}" in cheap
    assert cheap.split()[-4:] == ["48", "$100.01", "$50.01", "$4,800.50"]
    assert second.split()[:4] == ["2", "x", "ml.p5.48xlarge", "us-east-1b"]
    assert dear.split()[0] == "tpo-dear"
    assert f"{local[0]:%Y-%m-%d %H:%M}" in dear
    assert dear.split()[-4:] == ["48", "$125.00", "$62.50", "$6,000.00"]


def test_json_has_every_fact(service: SageMakerService) -> None:
    service.offerings = [CHEAP]
    [found] = json.loads(run("--json").stdout)
    assert {name: value for name, value in found.items() if name != "segments"} == {
        "id": "tpo-cheap",
        "targets": ["training-job"],
        "hours": 48.0,
        "upfront_fee": 4800.5,
        "currency": "USD",
        "price_per_hour": 100.0104,
        "price_per_instance_hour": 50.0052,
    }
    first, second = found["segments"]
    assert datetime.fromisoformat(first.pop("starts_at")).timestamp() == START.timestamp() + 24 * HOUR
    assert datetime.fromisoformat(first.pop("ends_at")).timestamp() == START.timestamp() + 48 * HOUR
    assert first == {
        "instance_type": "ml.p5.48xlarge",
        "instance_count": 2,
        "ultraserver_type": None,
        "ultraserver_count": None,
        "availability_zone": "us-east-1a",
        "hours": 24.0,
    }
    assert second["availability_zone"] == "us-east-1b"


def test_facts_that_aws_leaves_out_are_left_empty(service: SageMakerService) -> None:
    bare = {
        "InstanceType": "ml.p6e-gb200.36xlarge",
        "InstanceCount": 18,
        "UltraServerType": "ml.u-p6e-gb200x72",
    }
    ultra = {**offering("tpo-ultra", "x"), "ReservedCapacityOfferings": [bare]}
    service.offerings = [offering("tpo-bare", None), ultra]
    lines = run("--ultraserver-type", "ml.u-p6e-gb200x72").stdout.splitlines()
    assert lines[1].split() == ["tpo-bare", "0"]
    assert "18 x ml.p6e-gb200.36xlarge in 1 x ml.u-p6e-gb200x72" in lines[2]
    assert "$" not in "".join(lines)


def test_no_offerings_are_a_result(service: SageMakerService) -> None:
    shown = run("--instance-type", "ml.p5.48xlarge")
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert shown.stderr.startswith("AWS has no such offering now.")
    assert json.loads(run("--json").stdout) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--instance-type p5.48xlarge", "start with ml."),
        ("--instance-count 2", "needs --instance-type"),
        ("--ultraserver-count 2", "needs --ultraserver-type"),
        ("--hours 0", "--hours"),
        ("--start-after soon", "'soon' is not a time such as 2026-12-01"),
        ("--start-after 2026-12-02 --end-before 2026-12-01", "--end-before is not after --start-after"),
        ("--target laptop", "'laptop' is not one of training-job, hyperpod-cluster"),
    ],
)
def test_a_wrong_option_is_refused_without_asking(
    arguments: str, said: str, service: SageMakerService
) -> None:
    shown = run(*arguments.split())
    assert shown.exit_code == 2
    assert said in " ".join(shown.stderr.split())
    assert service.calls == []


def test_errors_of_aws_are_sentences(service: SageMakerService) -> None:
    denied = "User is not authorized to perform: sagemaker:SearchTrainingPlanOfferings"
    service.fail("SearchTrainingPlanOfferings", ServiceError("AccessDeniedException", denied))
    error = run("--region", "eu-west-1").exception
    assert isinstance(error, PlatformError)
    assert error.message.startswith(
        "training plan offerings in eu-west-1: AccessDeniedException: User is not"
    )
    assert "permission named above" in error.hint
    wrong = "Value 'ml.m5.large' at 'instanceType' failed to satisfy constraint: Member must satisfy enum value set"
    service.fail("SearchTrainingPlanOfferings", ServiceError("ValidationException", wrong))
    error = run("--instance-type", "ml.m5.large").exception
    assert isinstance(error, InvalidJob)
    assert error.hint == "Check the argument instance_type."


def test_a_missing_region_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    error = run().exception
    assert isinstance(error, PlatformError)
    assert error.message == "no AWS region is configured"


def test_odd_answers_are_shown_as_they_are(service: SageMakerService) -> None:
    service.offerings = [offering("a[red]\x1b[31m", "NaN", capacity(0, 48))]
    assert r"a[red]\x1b[31m" in run().stdout
    assert json.loads(run("--json").stdout)[0]["upfront_fee"] is None
