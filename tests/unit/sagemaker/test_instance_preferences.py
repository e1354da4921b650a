"""Jobs that accept several instance types: what is sent, what is refused, what was selected, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from described_answers import answer

from cloudtrain import Estimator, PyTorch
from cloudtrain.cost import Price
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.sagemaker.cost import cost_of
from cloudtrain.platforms.sagemaker.describe import describe_answer
from cloudtrain.platforms.sagemaker.doctor.checks import _quotas
from cloudtrain.platforms.sagemaker.training_job import SELECTED, host_count

BASE: dict[str, Any] = {
    "image_uri": "my:1",
    "role": "arn:aws:iam::123456789012:role/R",
    "output_path": "s3://mine/out",
    "code_location": "s3://mine/code",
}
PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/my-plan"
BIG, MIDDLE, SMALL = "ml.p5.48xlarge", "ml.p4d.24xlarge", "ml.g5.12xlarge"
COUNTED = [
    {"instance_type": BIG, "instance_count": 1, "training_plan_arns": [PLAN]},
    {"instance_type": SMALL, "instance_count": 8},
]
SENT = [
    {"InstanceType": BIG, "InstanceCount": 1, "TrainingPlanArns": [PLAN]},
    {"InstanceType": SMALL, "InstanceCount": 8},
]


def resources(**arguments: Any) -> dict[str, Any]:
    body = Estimator(**BASE, **arguments).prepare(job_name="job").request.body
    found: dict[str, Any] = body["ResourceConfig"]
    return found


def test_one_count_is_that_of_the_job(region: None) -> None:
    preferences = [{"instance_type": BIG}, {"instance_type": MIDDLE}]
    assert resources(instance_preferences=preferences, instance_count=4) == {
        "InstancePreferences": [{"InstanceType": BIG}, {"InstanceType": MIDDLE}],
        "InstanceCount": 4,
        "VolumeSizeInGB": 30,
    }


def test_or_each_type_has_its_own(region: None) -> None:
    assert resources(instance_preferences=COUNTED) == {"InstancePreferences": SENT, "VolumeSizeInGB": 30}


def test_any_count_above_one_brings_the_job_secret(region: None, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    script = str(tmp_path / "train.py")
    for preferences, channels in (
        (COUNTED, ["cloudtrain", "code", "cloudtrain-secret"]),
        ([{"instance_type": BIG}], ["cloudtrain", "code"]),
    ):
        body = (
            Estimator(script, **BASE, instance_preferences=preferences).prepare(job_name="job").request.body
        )
        assert [channel["ChannelName"] for channel in body["InputDataConfig"]] == channels


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "type": ({"instance_type": BIG}, "cannot be combined with instance_type"),
    "groups": (
        {"instance_groups": [{"instance_group_name": "g", "instance_type": BIG, "instance_count": 1}]},
        "cannot be combined with instance_groups",
    ),
    "spot": ({"use_spot_instances": True, "max_wait": 90000}, "cannot be combined with use_spot_instances"),
    "placement": (
        {"instance_placement_config": {"EnableMultipleJobs": True}},
        "cannot be combined with instance_placement_config",
    ),
    "count": ({"instance_count": 2}, "instance_count: every preference in instance_preferences has its own"),
    "plan": ({"training_plan": PLAN}, r"training_plan: instance_preferences\[0\] has its own"),
    "some counts": (
        {"instance_preferences": [*COUNTED, {"instance_type": MIDDLE}]},
        r"instance_preferences\[2\]: has no instance_count, but others have",
    ),
    "twice": (
        {"instance_preferences": [{"instance_type": BIG}, {"instance_type": BIG}]},
        r"instance_preferences\[1\].instance_type: ml.p5.48xlarge is in the list already",
    ),
    "too many": (
        {"instance_preferences": [{"instance_type": f"ml.{number}"} for number in range(6)]},
        "there are 6, and SageMaker accepts 5",
    ),
    "plans": (
        {"instance_preferences": [{"instance_type": BIG, "training_plan_arns": [PLAN, PLAN]}]},
        r"instance_preferences\[0\].training_plan_arns",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str, region: None) -> None:
    arguments, message = REFUSED[case]
    with pytest.raises(InvalidJob, match=message):
        resources(**{"instance_preferences": COUNTED, **arguments})


def test_one_image_must_run_on_all_types(region: None, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    arguments = {**BASE, "image_uri": None, "source_dir": str(tmp_path)}
    mixed = [{"instance_type": BIG}, {"instance_type": "ml.m5.xlarge"}]
    with pytest.raises(InvalidJob, match=r"no image of pytorch for both ml.p5.48xlarge and ml.m5.xlarge"):
        PyTorch("train.py", "2.5.1", "py311", **arguments, instance_preferences=mixed).prepare()
    estimator = PyTorch("train.py", "2.5.1", "py311", **arguments, instance_preferences=COUNTED)
    body = estimator.prepare(job_name="job").request.body
    assert "2.5.1-gpu-py311" in body["AlgorithmSpecification"]["TrainingImage"]


def test_elsewhere_the_first_one_counts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    preferences = [{"instance_type": BIG, "instance_count": 2}, {"instance_type": SMALL, "instance_count": 8}]
    estimator = Estimator(str(tmp_path / "train.py"), platform="local", instance_preferences=preferences)
    body = estimator.prepare().request.body
    assert (body["instance_type"], body["host_count"]) == (BIG, 2)


def described(status: str, *, preferences: Any = None, **found: Any) -> dict[str, Any]:
    response = answer(status, ("Training", 0), (status, 9), BillableTimeInSeconds=3600)
    response["ResourceConfig"] = {"InstancePreferences": preferences or SENT, "VolumeSizeInGB": 30, **found}
    return response


PRICES = {BIG: Price(100.0, "node_hour"), SMALL: Price(7.0, "node_hour")}


def paid(response: dict[str, Any]) -> float | None:
    cost = cost_of(response, PRICES.get)
    return cost and cost.amount


def test_the_selected_type_is_shown_and_paid_for() -> None:
    response = described("Completed", SelectedInstanceType=SMALL, SelectedInstanceCount=8)
    details = describe_answer(response).details
    assert (details["instances"], details["selected"]) == (f"8 x {SMALL}", "preference 2 of 2")
    assert details["billable"] == "3,600 s on each instance"
    assert paid(response) == pytest.approx(56.0)
    assert host_count(response["ResourceConfig"]) == 8


def test_without_a_selected_count_that_of_the_preference_or_of_the_job_counts() -> None:
    response = described("Completed", SelectedInstanceType=SMALL)
    assert paid(response) == pytest.approx(56.0)
    plain = [{"InstanceType": BIG}, {"InstanceType": SMALL}]
    response = described("Completed", preferences=plain, SelectedInstanceType=BIG, InstanceCount=2)
    assert paid(response) == pytest.approx(200.0)


def test_details_before_the_selection_have_no_instance_type() -> None:
    response = described("Stopped")
    details = describe_answer(response).details
    assert details["instances"] == f"not selected yet: {BIG}, {SMALL}"
    assert "selected" not in details
    assert paid(response) is None
    assert host_count(response["ResourceConfig"]) == 0


def test_doctor_checks_the_quota_of_each_type_that_has_no_plan() -> None:
    body = {"ResourceConfig": {"InstancePreferences": SENT}}
    assert [name for name, _ in _quotas(None, body)] == [f"quota {SMALL}"]  # type: ignore[arg-type]
    plain = {"InstancePreferences": [{"InstanceType": BIG}, {"InstanceType": SMALL}], "InstanceCount": 2}
    assert [name for name, _ in _quotas(None, {"ResourceConfig": plain})] == [  # type: ignore[arg-type]
        f"quota {BIG}",
        f"quota {SMALL}",
    ]


def test_a_request_does_not_contain_what_was_selected(region: None) -> None:
    import boto3

    members = boto3.client("sagemaker").meta.service_model.shape_for("ResourceConfig").members
    assert {name for name in members if name.startswith("Selected")} == set(SELECTED)
