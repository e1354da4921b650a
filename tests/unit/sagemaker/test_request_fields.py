"""Every field of CreateTrainingJob in the installed botocore is set by a field of a job, or knowingly not sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudtrain import Estimator, FileSystemInput, Profiler, ProfilerConfig, ShuffleConfig, TrainingInput
from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import ARGUMENTS
from cloudtrain.platforms.sagemaker.request_fields import NOT_SENT, SET_BY
from cloudtrain.spec import FIELDS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "sagemaker.md"
ACCOUNT = "us-east-1:123456789012"
PLAN = f"arn:aws:sagemaker:{ACCOUNT}:training-plan/my-plan"

COMMON: dict[str, Any] = {
    "role": "arn:aws:iam::123456789012:role/R",
    "image_uri": "my:1",
    "output_path": "s3://b/out",
    "runtime": "toolkit",
}
EVERYTHING: list[dict[str, Any]] = [
    {
        "instance_type": "ml.m5.xlarge",
        "volume_kms_key": "key",
        "output_kms_key": "key",
        "keep_alive_period_in_seconds": 60,
        "training_plan": PLAN,
        "instance_placement_config": {
            "EnableMultipleJobs": True,
            "PlacementSpecifications": [{"UltraServerId": "u", "InstanceCount": 1}],
        },
        "use_spot_instances": True,
        "max_wait": 90000,
        "max_pending_time_in_seconds": 3600,
        "max_retry_attempts": 2,
        "metric_definitions": [{"Name": "loss", "Regex": "loss=(.*)"}],
        "enable_sagemaker_metrics": True,
        "container_entry_point": ["run"],
        "container_arguments": ["a"],
        "training_repository_access_mode": "Vpc",
        "training_repository_credentials_provider_arn": f"arn:aws:lambda:{ACCOUNT}:function:f",
        "inputs": {
            "all": {
                "s3_data": "s3://b/x",
                "s3_data_type": "AugmentedManifestFile",
                "attribute_names": ["a"],
                "instance_groups": ["g"],
                "model_access_config": {"AcceptEula": True},
                "hub_access_config": {"HubContentArn": "arn"},
                "content_type": "text/csv",
                "compression": "Gzip",
                "record_wrapping": "RecordIO",
                "input_mode": "Pipe",
                "shuffle_config": {"seed": 1},
            },
            "mounted": {
                "file_system_id": "fs-0123456789",
                "file_system_type": "EFS",
                "directory_path": "/a",
            },
        },
        "disable_output_compression": True,
        "subnets": ["subnet-1"],
        "security_group_ids": ["sg-1"],
        "tags": {"a": "b"},
        "environment": {"A": "b"},
        "hyperparameters": {"lr": 1},
        "enable_network_isolation": True,
        "encrypt_inter_container_traffic": True,
        "checkpoint_s3_uri": "s3://b/c",
        "checkpoint_local_path": "/c",
        "debugger_hook_config": {
            "s3_output_path": "s3://b/d",
            "container_local_output_path": "/d",
            "hook_parameters": {"a": "b"},
            "collection_configs": [{"name": "n", "parameters": {"a": "b"}}],
        },
        "rules": [
            {
                "name": "r",
                "image_uri": "123456789012.dkr.ecr.us-east-1.amazonaws.com/rules:1",
                "instance_type": "ml.t3.medium",
                "volume_size_in_gb": 1,
                "container_local_output_path": "/r",
                "s3_output_path": "s3://b/r",
                "rule_parameters": {"a": "b"},
                "profiles": profiles,
            }
            for profiles in (False, True)
        ],
        "tensorboard_output_config": {"s3_output_path": "s3://b/t", "container_local_output_path": "/t"},
        "experiment_config": dict.fromkeys(
            ("ExperimentName", "TrialName", "TrialComponentDisplayName", "RunName"), "e"
        ),
        "profiler_config": {
            "system_monitor_interval_millis": 500,
            "framework_profile_params": {"a": "b"},
        },
        "enable_remote_debug": True,
        "enable_infra_check": True,
        "enable_session_tag_chaining": True,
        "mlflow_config": {
            "mlflow_resource_arn": f"arn:aws:sagemaker:{ACCOUNT}:mlflow-tracking-server/s",
            "mlflow_experiment_name": "e",
            "mlflow_run_name": "r",
        },
        "model_package_config": {
            "model_package_group_arn": f"arn:aws:sagemaker:{ACCOUNT}:model-package-group/g",
            "source_model_package_arn": f"arn:aws:sagemaker:{ACCOUNT}:model-package/g/1",
        },
    },
    {
        "instance_groups": [
            {"instance_group_name": "g", "instance_type": "ml.m5.xlarge", "instance_count": 1},
        ],
        "profiler_config": ProfilerConfig(profile_params=Profiler()),
    },
    {
        "instance_preferences": [
            {"instance_type": "ml.p5.48xlarge", "instance_count": 1, "training_plan_arns": [PLAN]},
            {"instance_type": "ml.g5.xlarge", "instance_count": 8},
        ],
        "platform": "sagemaker",
    },
]


def leaves(model: dict[str, Any], name: str, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The fields of a shape, without the structures around them, by their paths without indexes."""
    shape = model["shapes"][name]
    if shape["type"] == "list" and model["shapes"][shape["member"]["shape"]]["type"] == "structure":
        yield from leaves(model, shape["member"]["shape"], path)
    elif shape["type"] == "structure" and ".".join(path) not in NOT_SENT:
        for member, found in shape["members"].items():
            yield from leaves(model, found["shape"], (*path, member))
    else:
        yield ".".join(path)


def rendered(value: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The paths in a request that `leaves` has."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        for item in value:
            yield from rendered(item, path)
    elif isinstance(value, dict) and not {".".join(path)} & MAPS:
        for name, item in value.items():
            yield from rendered(item, (*path, name))
    else:
        yield ".".join(path)


MAPS = {
    "HyperParameters", "Environment", "DebugHookConfig.HookParameters", "ProfilerConfig.ProfilingParameters",
    "DebugHookConfig.CollectionConfigurations.CollectionParameters", "ProfilerRuleConfigurations.RuleParameters",
    "DebugRuleConfigurations.RuleParameters",
}  # fmt: skip


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    return set(leaves(Aws().service_model("sagemaker"), "CreateTrainingJobRequest"))


def test_every_field_that_aws_has_is_decided_on(known: set[str]) -> None:
    new = known - set(SET_BY) - set(NOT_SENT)
    assert not new, f"new in botocore: add them to request_fields.SET_BY, or to NOT_SENT with a reason: {new}"
    gone = (set(SET_BY) | set(NOT_SENT)) - known - {ONLY_OF_THE_SDK}
    assert {path for path in gone if not any(name.startswith(f"{path}.") for name in known)} <= LISTS


ONLY_OF_THE_SDK = "InputDataConfig.TargetAttributeName"
"""A field that the SDK's version 2 sends, and that botocore lacks."""

LISTS = {path for path in SET_BY if any(name.startswith(f"{path}.") for name in SET_BY)}
"""The fields that have a name, and whose parts have names too."""


def test_the_request_has_each_field_that_a_job_sets_and_no_other(known: set[str], region: None) -> None:
    sent: set[str] = set()
    for arguments in EVERYTHING:
        sent |= set(rendered(Estimator(**COMMON, **arguments).prepare(job_name="job").request.body))
    assert sent == known - set(NOT_SENT)


def test_the_names_are_fields_of_a_job() -> None:
    names = {name.split(".")[0].split("[")[0] for name in SET_BY.values()}
    assert names <= set(FIELDS)


def test_the_reference_names_what_is_not_sent() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for path, reason in NOT_SENT.items():
        assert f"| `{path}` | {reason} |" in page


def test_a_local_folder_of_checkpoints_without_a_uri_is_not_sent(region: None) -> None:
    job = Estimator(**COMMON, instance_type="ml.m5.xlarge", checkpoint_local_path="/c")
    assert "CheckpointConfig" not in job.prepare().request.body


def test_a_channel_has_the_config_of_the_sdk() -> None:
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://b/x", "S3DataDistributionType": "FullyReplicated"}
    channel = TrainingInput("s3://b/x", content_type="text/csv", shuffle_config=ShuffleConfig(1))
    assert channel.config == {
        "DataSource": {"S3DataSource": source}, "ContentType": "text/csv", "ShuffleConfig": {"Seed": 1}
    }  # fmt: skip
    assert (
        "S3DataDistributionType"
        not in (TrainingInput("s3://b/x", target_attribute_name="y").config["DataSource"]["S3DataSource"])
    )
    assert FileSystemInput("fs-1", "EFS", "/a").config["DataSource"]["FileSystemDataSource"] == {
        "FileSystemId": "fs-1", "FileSystemType": "EFS", "DirectoryPath": "/a", "FileSystemAccessMode": "ro"
    }  # fmt: skip


def test_hints_of_aws_errors_name_the_arguments_of_the_table() -> None:
    """`aws.errors` is below the platforms, and keeps the names of the most frequent fields itself."""
    by_name: dict[str, set[str]] = {part.lower(): set() for path in SET_BY for part in path.split(".")}
    for path, field in SET_BY.items():
        for part in path.split("."):
            by_name[part.lower()].add(field.partition(".")[0].partition("[")[0])
    assert {name: field for name, field in ARGUMENTS.items() if field not in by_name[name]} == {}
