"""docs/reference/job-file.md says which platform uses which field: compare that with what the platforms render."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cloudtrain.errors import InvalidJob
from cloudtrain.images import flavour_of
from cloudtrain.spec import FIELDS, TrainingJob
from cloudtrain.spec.explain import OTHER_NAMES, SECONDS
from cloudtrain.submission import Submission, prepare

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "job-file.md"
PLATFORMS = ("local", "container", "sagemaker")

BASE: dict[str, dict[str, Any]] = {
    "local": {"entry_point": "train.py"},
    "container": {"entry_point": "train.py", "image_uri": "python:3.12"},
    "sagemaker": {
        "entry_point": "train.py",
        "image_uri": "python:3.12",
        "instance_type": "ml.m5.xlarge",
        "role": "arn:aws:iam::123456789012:role/Train",
        "output_path": "s3://bucket/out",
        "code_location": "s3://bucket/code",
    },
}
"""The smallest job of each platform."""

TOOLKIT = {"runtime": "toolkit"}
AUTO = TrainingJob(entry_point="train.py", image_uri="auto", framework="pytorch")
BY_AUTO = {
    ("framework", "container"): replace(AUTO, framework="tensorflow"),
    ("framework_version", "container"): replace(AUTO, framework_version="2.6.0"),
}
"""On the container platform these fields choose the image of ``image_uri: auto``, which only an engine can resolve."""

PYTORCH = {"image_uri": None, "framework": "pytorch", "framework_version": "2.5.1", "py_version": "py311"}
NEWER = {**PYTORCH, "framework_version": "99.1"}
HUGGING_FACE = {
    "image_uri": None,
    "instance_type": "ml.g5.xlarge",
    "framework": "huggingface",
    "transformers_version": "4.49.0",
    "py_version": "py311",
}
TENSORFLOW = {"framework": "tensorflow", "output_path": "s3://bucket/out", "runtime": "toolkit"}
CHECKPOINTS = {"checkpoint_s3_uri": "s3://bucket/checkpoints"}
VPC = {"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]}
SAGEMAKER = "arn:aws:sagemaker:us-east-1:123456789012"
COMPILED = {
    "image_uri": None,
    "instance_type": "ml.g5.xlarge",
    "framework": "tensorflow",
    "framework_version": "2.11",
    "py_version": "py39",
    "runtime": "toolkit",
}
REGISTRY = {"training_repository_access_mode": "Vpc"}

SAMPLES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # field: (what the job has with it, what the job has without it), both on top of BASE
    "entry_point": ({"entry_point": "other.py"}, {}),
    "source_dir": ({"source_dir": "src"}, {}),
    "dependencies": ({"dependencies": ["other.py"]}, {}),
    "arguments": ({"arguments": ["fit"]}, {}),
    "hyperparameters": ({"hyperparameters": {"lr": 1}}, {}),
    "hyperparameter_encoding": ({"hyperparameter_encoding": "json"}, {}),
    "environment": ({"environment": {"A": "b"}}, {}),
    "inputs": ({"inputs": {"train": "s3://bucket/train"}}, {}),
    "distribution": ({"distribution": {"torch_distributed": {"enabled": True}}}, {}),
    "container_entry_point": ({"container_entry_point": ["run"], **TOOLKIT}, TOOLKIT),
    "container_arguments": ({"container_arguments": ["a"], **TOOLKIT}, TOOLKIT),
    "container_log_level": ({"container_log_level": 10}, {}),
    "runtime": ({"runtime": "toolkit"}, {}),
    "image_uri": ({"image_uri": "python:3.11"}, {}),
    "framework": (PYTORCH, {}),
    "framework_version": ({**PYTORCH, "framework_version": "2.4.0"}, PYTORCH),
    "py_version": ({**NEWER, "py_version": "py312"}, NEWER),
    "transformers_version": (
        {**HUGGING_FACE, "pytorch_version": "2.5.1"},
        {**HUGGING_FACE, "transformers_version": "4.99.0", "pytorch_version": "2.5.1"},
    ),
    "pytorch_version": (
        {**HUGGING_FACE, "pytorch_version": "2.5.1"},
        {**HUGGING_FACE, "pytorch_version": "2.99.0"},
    ),
    "tensorflow_version": (
        {**HUGGING_FACE, "tensorflow_version": "2.6.3"},
        {**HUGGING_FACE, "tensorflow_version": "2.5.1"},
    ),
    "model_dir": ({**TENSORFLOW, "model_dir": "s3://bucket/model"}, TENSORFLOW),
    "instance_type": ({"instance_type": "ml.p3.2xlarge"}, {}),
    "instance_count": ({"instance_count": 2}, {}),
    "spare_hosts": ({"spare_hosts": 1}, {}),
    "min_instance_count": ({"min_instance_count": 1}, {}),
    "instance_preferences": (
        {"instance_type": None, "instance_preferences": [{"instance_type": "ml.p3.2xlarge"}]},
        {},
    ),
    "volume_size": ({"volume_size": 50}, {}),
    "keep_alive_period_in_seconds": ({"keep_alive_period_in_seconds": 60}, {}),
    "training_plan": ({"training_plan": f"{SAGEMAKER}:training-plan/my-plan"}, {}),
    "instance_placement_config": ({"instance_placement_config": {"EnableMultipleJobs": True}}, {}),
    "max_run": ({"max_run": 60}, {}),
    "max_cost": ({"max_cost": 1}, {}),
    "max_wait": (
        {"use_spot_instances": True, "max_wait": 90000},
        {"use_spot_instances": True, "max_wait": 90001},
    ),
    "max_pending_time_in_seconds": ({"max_pending_time_in_seconds": 3600}, {}),
    "use_spot_instances": ({"use_spot_instances": True, "max_wait": 90000}, {}),
    "max_retry_attempts": ({"max_retry_attempts": 2}, {}),
    "hang_after": ({"hang_after": 60}, {}),
    "on_hang": ({"on_hang": "stop"}, {}),
    "hang_timeout": ({"hang_timeout": 5}, {}),
    "join_timeout": ({"join_timeout": 60}, {}),
    "host_timeout": ({"host_timeout": 60}, {}),
    "stop_grace": ({"stop_grace": 5}, {}),
    "output_path": ({"output_path": "s3://bucket/other"}, {}),
    "code_location": ({"code_location": "s3://bucket/other"}, {}),
    "checkpoint_s3_uri": (CHECKPOINTS, {}),
    "checkpoint_local_path": ({**CHECKPOINTS, "checkpoint_local_path": "/ckpt"}, CHECKPOINTS),
    "disable_output_compression": ({"disable_output_compression": True}, {}),
    "input_mode": (
        {"input_mode": "FastFile", "inputs": {"train": "s3://bucket/train"}},
        {"inputs": {"train": "s3://bucket/train"}},
    ),
    "max_source_size": ({"max_source_size": 5}, {}),
    "max_source_files": ({"max_source_files": 5}, {}),
    "model_uri": ({"model_uri": "s3://bucket/model.tar.gz"}, {}),
    "model_channel_name": (
        {"model_uri": "s3://bucket/m", "model_channel_name": "start"},
        {"model_uri": "s3://bucket/m"},
    ),
    "metric_definitions": ({"metric_definitions": [{"Name": "loss", "Regex": "loss=(.*)"}]}, {}),
    "timeline": ({"timeline": True}, {}),
    "notify": ({"notify": [{"webhook": "http://127.0.0.1"}]}, {}),
    "samples": ({"samples": False}, {}),
    "tags": ({"tags": {"a": "b"}}, {}),
    "role": ({"role": "arn:aws:iam::123456789012:role/Other"}, {}),
    "subnets": (VPC, {}),
    "security_group_ids": ({**VPC, "security_group_ids": ["sg-2"]}, VPC),
    "volume_kms_key": ({"volume_kms_key": "key"}, {}),
    "output_kms_key": ({"output_kms_key": "key"}, {}),
    "encrypt_inter_container_traffic": ({"encrypt_inter_container_traffic": True}, {}),
    "enable_network_isolation": ({"enable_network_isolation": True}, {}),
    "enable_sagemaker_metrics": ({"enable_sagemaker_metrics": True}, {}),
    "enable_infra_check": ({"enable_infra_check": True}, {}),
    "enable_remote_debug": ({"enable_remote_debug": True}, {}),
    "enable_session_tag_chaining": ({"enable_session_tag_chaining": True}, {}),
    "training_repository_access_mode": (REGISTRY, {}),
    "training_repository_credentials_provider_arn": (
        {
            **REGISTRY,
            "training_repository_credentials_provider_arn": "arn:aws:lambda:us-east-1:123456789012:function:f",
        },
        REGISTRY,
    ),
    "debugger_hook_config": ({"debugger_hook_config": True}, {}),
    "rules": ({"rules": [{"name": "Overfit", "rule_parameters": {"rule_to_invoke": "Overfit"}}]}, {}),
    "compiler_config": (
        {**COMPILED, "compiler_config": {}},
        COMPILED,
    ),
    "profiler_config": ({"profiler_config": {"system_monitor_interval_millis": 500}}, {}),
    "disable_profiler": ({"disable_profiler": True}, {}),
    "tensorboard_output_config": (
        {"tensorboard_output_config": {"s3_output_path": "s3://bucket/tensorboard"}},
        {},
    ),
    "experiment_config": ({"experiment_config": {"ExperimentName": "e"}}, {}),
    "mlflow_config": (
        {"mlflow_config": {"mlflow_resource_arn": f"{SAGEMAKER}:mlflow-tracking-server/s"}},
        {},
    ),
    "model_package_config": (
        {"model_package_config": {"model_package_group_arn": f"{SAGEMAKER}:model-package-group/g"}},
        {},
    ),
}

NOT_SAMPLED = {
    "platform", "platform_options", "instance_groups", "job_name", "base_job_name", "allow_secrets", "secrets",
    "source", "cost_terms", "max_gpu_hours",
}  # fmt: skip
"""Fields that every platform uses, or that the table explains in its last column."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(tmp_path / "config.yaml"))
    rows = "".join(f"{{platform: {name}, node_hour: 2}}, " for name in ("local", "container"))
    (tmp_path / "config.yaml").write_text(f"prices: {{rows: [{rows}]}}")
    for script in ("train.py", "other.py", "src/train.py"):
        path = tmp_path / script
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"print({script!r})\n")
    return tmp_path


def test_every_field_is_sampled() -> None:
    assert {*SAMPLES, *NOT_SAMPLED} == set(FIELDS)


@pytest.mark.parametrize("field", SAMPLES)
def test_the_table_marks_the_platforms_that_use_a_field(field: str, folder: Path) -> None:
    assert _shown()[field] == " ".join(_use(field, platform) for platform in PLATFORMS)


def _shown() -> dict[str, str]:
    """The columns ``local``, ``container`` and ``sagemaker`` of the table, by field."""
    rows = re.findall(
        r"^\| `(\w+)` \|[^|]*\|[^|]*\| (\S+) \| (\S+) \| (\S+) \|", PAGE.read_text(encoding="utf-8"), re.M
    )
    return {field: " ".join(marks) for field, *marks in rows}


def _use(field: str, platform: str) -> str:
    """``✓`` where the field changes what is submitted, ``✗`` where it is refused, else ``-``."""
    with_it, without_it = (_job(fields, platform) for fields in SAMPLES[field])
    if (field, platform) in BY_AUTO:
        return "✓" if flavour_of(BY_AUTO[field, platform], gpu=False) != flavour_of(AUTO, gpu=False) else "-"
    before = _content(prepare(without_it))
    try:
        after = _content(prepare(with_it))
    except InvalidJob as error:
        assert str(error).startswith(field), error
        return "✗"
    return "-" if before == after else "✓"


def _job(fields: dict[str, Any], platform: str) -> dict[str, Any]:
    """``fields`` on top of the smallest job. Only SageMaker knows an image for a framework."""
    if platform == "sagemaker":
        merged = {**BASE[platform], **fields}
        fields = {name: value for name, value in merged.items() if value is not None}
    else:
        fields = {**BASE[platform], **{name: value for name, value in fields.items() if value is not None}}
    return {"platform": platform, "job_name": "job", **fields}


def _content(submission: Submission) -> str:
    """Everything that decides what runs: the request, and which archive is uploaded where."""
    archive, source = submission.archive, submission.job.source
    parts = [submission.request.body, archive and archive.sha256, source and source.uri]
    return json.dumps(parts, sort_keys=True, default=str)


def test_times_are_marked_in_messages() -> None:
    """`SECONDS` names the fields that the page describes as seconds."""
    rows = re.findall(r"^\| `(\w+)` \| (?:seconds|1800 to)", PAGE.read_text(), re.MULTILINE)
    assert {*rows} == SECONDS


def test_no_field_is_another_name() -> None:
    others = {name for names in OTHER_NAMES.values() for name in names}
    assert not others & {*FIELDS}
