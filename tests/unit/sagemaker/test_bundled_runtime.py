"""The fields that the runtime "cloudtrain" adds to a CreateTrainingJob request."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import boto3
import pytest

from cloudtrain.aws.aws import Aws
from cloudtrain.contract import Settings, decode_arguments
from cloudtrain.errors import InvalidJob
from cloudtrain.packaging import pack_runtime
from cloudtrain.platforms.sagemaker._bundled_runtime import (
    forget_runtime,
    runtime_uri,
    upload_runtime,
    upload_secret,
    with_runtime,
)
from cloudtrain.platforms.sagemaker.render import resolve
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import state_home

SHA = 64 * "a"
FIELDS: dict[str, Any] = {
    "entry_point": "train.py",
    "job_name": "a-job",
    "code_location": "s3://bucket/code",
    "source": {"uri": f"s3://bucket/code/{SHA}/sourcedir.tar.gz", "sha256": SHA},
}
BODY = {
    "TrainingJobName": "a-job",
    "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "Pipe"},
    "InputDataConfig": [{"ChannelName": "train"}],
    "Environment": {"MINE": "1"},
}


def bundled(**fields: Any) -> dict[str, Any]:
    job = TrainingJob.from_dict({**FIELDS, **fields})
    return with_runtime(BODY, job, "eu-west-1")


@pytest.mark.parametrize(
    ("distribution", "expected"),
    [
        (
            {"agent": {"command": "launch --n={hosts}", "processes_per_host": 2}},
            {
                "sagemaker_agent_enabled": "true",
                "sagemaker_agent_command": '"launch --n={hosts}"',
                "sagemaker_processes_per_host": "2",
            },
        ),
        ({"parameter_server": {}}, {"sagemaker_parameter_server_enabled": "true"}),
        (
            {"multi_worker_mirrored_strategy": {}},
            {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"},
        ),
    ],
)
def test_the_launcher_is_in_the_hyperparameters(
    distribution: dict[str, Any], expected: dict[str, str]
) -> None:
    """With the toolkit's own keys, where it has them."""
    sent = bundled(distribution=distribution)["HyperParameters"]
    assert {name: value for name, value in sent.items() if "enabled" in name or name in expected} == expected


@pytest.mark.parametrize("kind", ["parameter_server", "multi_worker_mirrored_strategy"])
def test_strategies_of_tensorflow_need_tensorflow(kind: str) -> None:
    with pytest.raises(
        InvalidJob, match=f"distribution.{kind}: it is TensorFlow's, but the framework is mxnet"
    ):
        bundled(framework="mxnet", distribution={kind: {}})


def settings(**fields: Any) -> Settings:
    return Settings.from_environ(bundled(**fields)["Environment"])


def test_two_channels_follow_those_of_the_user(tmp_path: Path) -> None:
    train, runtime, source = bundled()["InputDataConfig"]
    assert train == {"ChannelName": "train"}
    packed = pack_runtime(tmp_path)
    assert runtime == {
        "ChannelName": "cloudtrain",
        "DataSource": {
            "S3DataSource": {
                "S3DataType": "S3Prefix",
                "S3Uri": f"s3://bucket/code/runtime/{packed.sha256}/",
                "S3DataDistributionType": "FullyReplicated",
            }
        },
        "InputMode": "File",  # whatever the job's other channels are
    }
    assert source["ChannelName"] == "code"
    assert source["DataSource"]["S3DataSource"]["S3Uri"] == f"s3://bucket/code/{SHA}/"


def test_the_default_bucket_takes_the_runtime() -> None:
    job = TrainingJob.from_dict({**FIELDS, "code_location": None, "role": "arn:aws:iam::1:role/R"})
    job = resolve(job, Aws(boto3.Session(region_name="eu-west-1"), bucket="mine"))
    body = with_runtime(BODY, job, "eu-west-1")
    assert (runtime_uri(body) or "").startswith("s3://mine/cloudtrain/runtime/")


def test_the_entrypoint_is_within_sagemaker_s_limits() -> None:
    entrypoint = bundled()["AlgorithmSpecification"]["ContainerEntrypoint"]
    assert all(len(part) <= 256 and "\n" not in part for part in entrypoint)
    assert entrypoint[:2] == ["/bin/sh", "-c"]
    assert entrypoint[3] == "/opt/ml/input/data/cloudtrain/cloudtrain.pyz"


def test_hyperparameters_are_those_of_the_local_platform() -> None:
    values = bundled(
        hyperparameters={"lr": 0.1, "version": "1.10", "nested": {"a": [1]}},
        distribution={"mpi": {"processes_per_host": 8}, "instance_groups": ["gpu"]},
        instance_groups=[
            {"instance_group_name": "gpu", "instance_type": "ml.p4d.24xlarge", "instance_count": 1}
        ],
    )["HyperParameters"]
    assert {name: json.loads(text) for name, text in values.items()} == {
        "lr": 0.1,
        "version": "1.10",
        "nested": {"a": [1]},
        "sagemaker_program": "train.py",
        "sagemaker_submit_directory": FIELDS["source"]["uri"],
        "sagemaker_container_log_level": 20,
        "sagemaker_job_name": "a-job",
        "sagemaker_region": "eu-west-1",
        "sagemaker_mpi_enabled": True,
        "sagemaker_mpi_num_of_processes_per_host": 8,
        "sagemaker_distribution_instance_groups": ["gpu"],
    }


def test_tensorflow_gets_its_model_dir_as_by_the_toolkit() -> None:
    values = bundled(framework="tensorflow", image_uri="i", model_dir="s3://bucket/models")["HyperParameters"]
    assert values["model_dir"] == '"s3://bucket/models"'
    assert "model_dir" not in bundled()["HyperParameters"]


def test_arguments_are_hyperparameters_in_pieces() -> None:
    values = bundled(arguments=["--text", "x" * 6000, ""])["HyperParameters"]
    assert [len(values[f"sagemaker_arguments{piece}"]) for piece in ("", "_2", "_3")] == [2500, 2500, 1018]
    assert decode_arguments(values) == ("--text", "x" * 6000, "")
    assert "sagemaker_arguments" not in bundled()["HyperParameters"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"arguments": ["x" * 130_000] * 2}, "arguments: are too long .* accepts 237,500 characters"),
        ({"hyperparameters": {"text": "x" * 2499}}, r"hyperparameters\.text: has 2,501 characters"),
        ({"hyperparameters": {f"h{number}": 1 for number in range(96)}}, "hyperparameters: there are 101"),
        ({"on_hang": "restart", "max_retry_attempts": 1}, "on_hang: SageMaker restarts a job only after"),
    ],
)
def test_the_limits_of_sagemaker(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        bundled(**fields)


def test_sagemaker_does_what_the_runtime_does_elsewhere() -> None:
    found = settings(output_path="s3://bucket/out", checkpoint_s3_uri="s3://bucket/checkpoints")
    lines = {"event_lines": True, "opaque_event_lines": True}
    assert found == Settings(
        job_name="a-job", source_sha256=SHA, source_channel="code", stop_grace=110.0, **lines
    )
    assert bundled()["Environment"]["MINE"] == "1"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"stop_grace": 30}, {"stop_grace": 30.0}),
        ({"join_timeout": 60}, {"join_timeout": 60.0}),
        ({"host_timeout": 60}, {"host_timeout": 60.0}),
        ({"hang_timeout": 600}, {"hang_timeout": 600.0}),
        ({"hang_after": 60, "on_hang": "stop"}, {"hang_after": 60.0, "on_hang": "stop"}),
        ({"checkpoint_local_path": "/opt/ml/checkpoints"}, {"checkpoint_uri": ""}),
        ({"checkpoint_local_path": "/opt/ml/mine"}, {"checkpoint_uri": "file:///opt/ml/mine"}),
        ({"checkpoint_local_path": "/opt/ml/mine", "checkpoint_s3_uri": None}, {"checkpoint_uri": ""}),
    ],
)
def test_settings(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    found = settings(**{"checkpoint_s3_uri": "s3://bucket/checkpoints", **fields})
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"entry_point": None}, "entry_point: cloudtrain's runtime needs a script"),
        (
            {"container_entry_point": ["run"]},
            "container_entry_point: cloudtrain's runtime starts the container",
        ),
        ({"container_arguments": ["-v"]}, "container_arguments: cloudtrain's runtime starts the container"),
        (
            {"inputs": {"code": "s3://b/c"}},
            "inputs.code: cloudtrain uses a channel of this name for its runtime",
        ),
        ({"model_uri": "s3://b/c", "model_channel_name": "cloudtrain"}, "inputs.cloudtrain: "),
        ({"inputs": {f"c{number}": "s3://b/c" for number in range(19)}}, "inputs: 19 channels and the two"),
        ({"distribution": {"pytorchddp": {}}}, "cannot launch ranks with 'pytorchddp'"),
        (
            {"checkpoint_s3_uri": "s3://b/c", "checkpoint_local_path": "here"},
            "checkpoint_local_path: 'here' is not absolute",
        ),
    ],
)
def test_what_it_cannot_give_is_refused_with_a_way_out(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidJob, match=message) as raised:
        bundled(**fields)
    assert raised.value.hint


class Shelf:
    """The part of a platform's account that takes uploads."""

    def __init__(self) -> None:
        self.uploads: list[tuple[str, str]] = []

    def upload(self, path: Path, uri: str) -> None:
        self.uploads.append((path.name, uri))


def test_an_upload_is_remembered_until_a_job_does_not_find_it() -> None:
    body, shelf = bundled(), Shelf()
    uri = f"{runtime_uri(body)}cloudtrain.pyz"
    upload_runtime(body, shelf.upload)
    upload_runtime(body, shelf.upload)
    assert shelf.uploads == [("cloudtrain.pyz", uri)]
    upload_runtime(bundled(code_location="s3://other/code"), shelf.upload)
    forget_runtime(body)
    upload_runtime(body, shelf.upload)
    assert [uploaded for _, uploaded in shelf.uploads].count(uri) == 2


def test_a_request_without_our_runtime_uploads_none() -> None:
    shelf = Shelf()
    upload_runtime(BODY, shelf.upload)
    forget_runtime(BODY)
    assert shelf.uploads == []


def test_after_a_day_it_is_looked_for_again() -> None:
    body, shelf = bundled(), Shelf()
    upload_runtime(body, shelf.upload)
    [mark] = (state_home() / "runtime" / "uploads").iterdir()
    yesterday = time.time() - 86500
    os.utime(mark, (yesterday, yesterday))
    for _ in range(2):
        upload_runtime(body, shelf.upload)
    assert len(shelf.uploads) == 2


def test_the_secret_of_several_hosts_is_an_object_that_a_channel_brings() -> None:
    assert bundled()["InputDataConfig"] == bundled(instance_count=1)["InputDataConfig"]
    body = bundled(instance_count=2)
    channel = body["InputDataConfig"][-1]
    uri = "s3://bucket/code/secrets/a-job/"
    assert (channel["ChannelName"], channel["DataSource"]["S3DataSource"]["S3Uri"]) == (
        "cloudtrain-secret",
        uri,
    )
    secrets: list[str] = []

    def upload(path: Path, to: str) -> None:
        assert to == f"{uri}secret"
        secrets.append(path.read_text())

    upload_secret(body, upload)
    upload_secret(bundled(), upload)
    upload_secret(body, upload)
    assert len(set(secrets)) == len(secrets) == 2
    assert all(len(secret) == 64 for secret in secrets)
    assert body == bundled(instance_count=2), "a request is data: it shows no secret"


def test_most_channels() -> None:
    inputs = {f"c{number}": "s3://bucket/data" for number in range(18)}
    bundled(inputs=inputs)
    with pytest.raises(InvalidJob, match="18 channels and the three of cloudtrain's runtime exceed"):
        bundled(inputs=inputs, instance_count=2)
