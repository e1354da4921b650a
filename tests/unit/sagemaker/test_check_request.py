"""A request that SageMaker would refuse is refused first, with the name of the field that the user wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudtrain import ContinuousParameter, Estimator, HyperparameterTuner, PyTorch
from cloudtrain.aws.aws import Aws
from cloudtrain.aws.validation import compile_pattern, matches
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.sagemaker import SageMakerPlatform

BASE: dict[str, Any] = {
    "image_uri": "my:1",
    "instance_type": "ml.m5.xlarge",
    "role": "arn:aws:iam::123456789012:role/R",
    "output_path": "s3://mine/out",
    "code_location": "s3://mine/code",
}
PREFERENCES = {"instance_type": None, "platform": "sagemaker"}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "enum": (
        {"instance_type": "ml.m5.xlrge"},
        "instance_type: 'ml.m5.xlrge' is not a value that SageMaker knows (ResourceConfig.InstanceType)\n"
        "  Did you mean 'ml.m5.xlarge'? If AWS has added it since botocore",
    ),
    "pattern": (
        {"training_plan": "arn:plan"},
        "training_plan: 'arn:plan' does not match SageMaker's pattern arn:aws[a-z\\-]*:sagemaker:[a-z0-9\\-]*:"
        "[0-9]{12}:training-plan/.* (ResourceConfig.TrainingPlanArn)\n"
        "  For example: arn:aws:sagemaker:us-east-1:123456789012:training-plan/my-plan",
    ),
    "pattern of a role": (
        {"role": "arn:aws:iam::1234:role/R"},
        "role: 'arn:aws:iam::1234:role/R' does not match SageMaker's pattern",
    ),
    "pattern in a list": (
        {"subnets": ["subnet-1", "subnet 2"], "security_group_ids": ["sg-1"]},
        "subnets[1]: 'subnet 2' does not match SageMaker's pattern",
    ),
    "length of a list": (
        {"subnets": ["subnet-1"], "security_group_ids": [f"sg-{number}" for number in range(6)]},
        "security_group_ids: has 6 items, and SageMaker accepts at most 5 (VpcConfig.SecurityGroupIds)",
    ),
    "length in a list": (
        {"metric_definitions": [{"Name": "a", "Regex": "(.)"}, {"Name": "b", "Regex": f"({'x' * 499})"}]},
        "metric_definitions[1].Regex: '(xxx",
    ),
    "length of a list of mappings": (
        {"metric_definitions": [{"Name": str(number), "Regex": "(.)"} for number in range(41)]},
        "metric_definitions: has 41 items, and SageMaker accepts at most 40",
    ),
    "number": (
        {"keep_alive_period_in_seconds": 30000},
        "keep_alive_period_in_seconds: is 30,000, and SageMaker accepts 0 to 21,600",
    ),
    "smallest number": (
        {"max_pending_time_in_seconds": 60},
        "max_pending_time_in_seconds: is 60, and SageMaker accepts 1,800 to 2,419,200",
    ),
    "mapping": (
        {"environment": {f"A{number}": "" for number in range(101)}},
        "environment: has 101 entries, and SageMaker accepts at most 100",
    ),
    "value of a mapping": (
        {"environment": {"LONG": "v" * 513}},
        "environment.LONG: has 513 characters, and SageMaker accepts at most 512 (Environment.LONG)\n"
        "  Pass longer text in a file",
    ),
    "name in a mapping": (
        {"debugger_hook_config": {"hook_parameters": {"n" * 257: "1"}}},
        f"debugger_hook_config.hook_parameters.{'n' * 257}: its name has 257 characters, and SageMaker accepts",
    ),
    "line break": (
        {"hyperparameters": {"text": "a\nb"}},
        "hyperparameters.text: has a line break, which SageMaker does not accept",
    ),
    "channel": (
        {"inputs": {"other": "s3://b/o", "train": {"s3_data": "s3://b/t", "content_type": "c" * 257}}},
        "inputs.train.content_type: 'ccc",
    ),
    "channels": (
        {"inputs": {f"c{number}": "s3://b/o" for number in range(21)}},
        "inputs: has 21 items, and SageMaker accepts at most 20 (InputDataConfig)\n  Combine the data",
    ),
    "URI of a channel": (
        {"inputs": {"train": f"s3://b/{'x' * 1020}"}},
        "inputs.train.s3_data: 's3://b/xxx",
    ),
    "URI of the model": ({"model_uri": f"s3://b/{'x' * 1020}"}, "model_uri: 's3://b/xxx"),
    "file system": (
        {"inputs": {"d": {"file_system_id": "fs-1", "file_system_type": "EFS", "directory_path": "/a"}}},
        "inputs.d.file_system_id: 'fs-1' does not match SageMaker's pattern",
    ),
    "tag": ({"tags": {"team": "a;b"}}, "tags[0].Value: 'a;b' does not match SageMaker's pattern"),
    "empty": ({"tags": {"": "b"}}, "tags[0].Key: is empty (Tags[0].Key)"),
    "unknown field": (
        {"experiment_config": {"Experiment": "e"}},
        "experiment_config.Experiment: SageMaker has no such field (ExperimentConfig.Experiment)\n"
        "  Did you mean 'ExperimentName'?",
    ),
    "missing field": (
        {"instance_placement_config": {"PlacementSpecifications": [{"UltraServerId": "u"}]}},
        "instance_placement_config.PlacementSpecifications[0].InstanceCount: is missing",
    ),
    "type": (
        {"instance_placement_config": {"EnableMultipleJobs": "yes"}},
        "instance_placement_config.EnableMultipleJobs: expected true or false, got str",
    ),
    "preference": (
        {
            **PREFERENCES,
            "instance_preferences": [{"instance_type": "ml.m5.large"}, {"instance_type": "ml.m5"}],
        },
        "instance_preferences[1].instance_type: 'ml.m5' is not a value that SageMaker knows",
    ),
    "mlflow": (
        {"mlflow_config": {"mlflow_resource_arn": "https://my-server"}},
        "mlflow_config.mlflow_resource_arn: 'https://my-server' does not match",
    ),
    "model package": (
        {"model_package_config": {"model_package_group_arn": "my-group"}},
        "model_package_config.model_package_group_arn: 'my-group' does not match",
    ),
    "registry": (
        {"training_repository_access_mode": "Public"},
        "training_repository_access_mode: 'Public' is not a value that SageMaker knows",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_sagemaker_would_refuse(case: str, region: None) -> None:
    arguments, message = REFUSED[case]
    with pytest.raises(InvalidJob) as caught:
        Estimator(**{**BASE, **arguments}).prepare(job_name="job")
    assert str(caught.value).startswith(message)
    assert caught.value.hint


def test_zero_is_accepted_where_sagemaker_accepts_it(region: None) -> None:
    arguments = {"keep_alive_period_in_seconds": 0, "volume_size": 0}
    resources = Estimator(**{**BASE, **arguments}).prepare(job_name="job").request.body["ResourceConfig"]
    assert (resources["KeepAlivePeriodInSeconds"], resources["VolumeSizeInGB"]) == (0, 0)


SECRET = "s3cret" * 100


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"environment": {"DB_PASSWORD": SECRET}}, "environment.DB_PASSWORD"),
        ({"environment": {"PLAIN": SECRET}}, "environment.PLAIN"),
        ({"hyperparameters": {"key": SECRET * 5}}, "hyperparameters.key"),
        ({"hyperparameters": {"key": f"{SECRET}\n"}}, "hyperparameters.key"),
        ({"container_arguments": [SECRET]}, "container_arguments[0]"),
        ({"secrets": ["MY_VARIABLE"]}, "secrets.MY_VARIABLE"),
    ],
)
def test_errors_quote_nothing_that_may_be_secret(
    arguments: dict[str, Any], field: str, region: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_VARIABLE", SECRET)
    with pytest.raises(InvalidJob) as caught:
        Estimator(**{**BASE, **arguments}).prepare(job_name="job")
    assert str(caught.value).startswith(f"{field}: has ")
    assert "s3cret" not in str(caught.value)


def test_a_request_of_another_origin_is_checked_before_anything_is_sent(region: None) -> None:
    body = dict(Estimator(**BASE).prepare(job_name="job").request.body)
    platform = SageMakerPlatform()
    with pytest.raises(InvalidJob, match="job_name: 'a_b' does not match"):
        platform.submit(Request("sagemaker", "a_b", {**body, "TrainingJobName": "a_b"}))
    assert not platform.aws._clients


TUNER: dict[str, tuple[dict[str, Any], str]] = {
    "objective": ({"objective_metric_name": "m" * 256}, "objective_metric_name: 'mmm"),
    "limit": (
        {"max_runtime_in_seconds": 60},
        "max_runtime_in_seconds: is 60, and SageMaker accepts 120 to 15,768,000 "
        "(HyperParameterTuningJobConfig.ResourceLimits.MaxRuntimeInSeconds)",
    ),
    "jobs": ({"max_jobs": 0}, "max_jobs: is 0, and SageMaker accepts at least 1"),
    "tag": ({"tags": [{"Key": "k", "Value": "v" * 300}]}, "tags[0].Value: 'vvv"),
}


@pytest.mark.parametrize("case", TUNER)
def test_a_tuning_job_that_sagemaker_would_refuse(case: str, region: None, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    arguments, message = TUNER[case]
    estimator = PyTorch(str(tmp_path / "train.py"), "2.5.1", "py311", **{**BASE, "image_uri": None})
    tuner = HyperparameterTuner(
        estimator,
        **{
            "objective_metric_name": "loss",
            "metric_definitions": [{"Name": "loss", "Regex": "loss=(.*)"}],
            "hyperparameter_ranges": {"lr": ContinuousParameter(0.1, 1)},
            **arguments,
        },
    )
    for start in (tuner.prepare, tuner.fit):
        with pytest.raises(InvalidJob) as caught:
            start(job_name="tune")
        assert str(caught.value).startswith(message)


def test_a_job_for_a_queue_is_checked_with_its_tags(region: None) -> None:
    queued = {**BASE, "platform_options": {"job_queue": "q"}}
    for arguments, message in (
        ({"tags": {"team": "a;b"}}, r"tags\[0\].Value: 'a;b' does not match"),
        ({"training_plan": "arn:plan"}, "training_plan: 'arn:plan' does not match"),
        ({"environment": {"PASSWORD": "v" * 513}}, "environment.PASSWORD: has 513 characters"),
    ):
        with pytest.raises(InvalidJob, match=message):
            Estimator(**{**queued, **arguments}).prepare(job_name="job")


def test_a_field_that_only_the_sdk_has_is_left_to_botocore(aws: None) -> None:
    channel = {"s3_data": "s3://b/t", "target_attribute_name": "y"}
    estimator = Estimator(**{**BASE, "output_path": "s3://my-data"}, inputs={"train": channel})
    [sent] = estimator.prepare(job_name="job").request.body["InputDataConfig"]
    assert sent["TargetAttributeName"] == "y"
    with pytest.raises(InvalidJob, match="TargetAttributeName"):
        estimator.fit(wait=False, job_name="job")


@pytest.mark.parametrize("service", ["sagemaker", "batch"])
def test_python_reads_every_pattern(service: str) -> None:
    shapes = Aws().service_model(service)["shapes"].values()
    unread = {
        shape["pattern"] for shape in shapes if "pattern" in shape and not compile_pattern(shape["pattern"])
    }
    assert not unread


TAG = r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)"


@pytest.mark.parametrize(
    ("pattern", "text", "is_match"),
    [
        (TAG, "Zoë Müller: größe=１ 漢字", True),
        (TAG, "a;b", False),
        (TAG, "a😀", False),
        (TAG, "a\u00a0b", True),  # a separator
        (r"[\p{L}\p{M}\p{S}\p{N}\p{P}]+", "a-b+é€«", True),
        (r"[\p{L}\p{M}\p{S}\p{N}\p{P}]+", "a b", False),
        (r"[\p{Alnum}\-]+", "aws-é", False),
        (r"\d{2}", "１２", False),
        (r"\w+", "é", False),
        ("[a-z]+$", "a\n", False),
        (".*", "a\nb", False),
        (r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\t]*", "a\t😀", True),
        (r"(?<broken", "anything", True),
    ],
)
def test_patterns_are_read_as_aws_does(pattern: str, text: str, is_match: bool) -> None:
    assert matches(pattern, text) is is_match
