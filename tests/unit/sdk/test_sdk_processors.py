"""No argument of the SDK's processors is dropped: each reaches the job, or is refused."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from cloudtrain import PyTorch, processing
from cloudtrain.errors import InvalidJob
from cloudtrain.processing import NetworkConfig, ProcessingInput, ProcessingOutput, ScriptProcessor

SDK = json.loads((Path(__file__).parents[2] / "data" / "sdk_surface" / "v2.json").read_text())["processors"]
SESSION = boto3.Session(region_name="us-east-1")
KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
VALUES: dict[str, Any] = {
    "base_job_name": "prepare",
    "code_location": "s3://bucket/code",
    "command": ["python3", "-u"],
    "entrypoint": ["/bin/prepare"],
    "env": {"LEVEL": "1"},
    "estimator_cls": PyTorch,
    "framework_version": "1.2-1",
    "image_uri": "img",
    "instance_count": 3,
    "instance_type": "ml.m5.xlarge",
    "max_runtime_in_seconds": 600,
    "network_config": NetworkConfig(subnets=["subnet-12345678"]),
    "output_kms_key": "alias/out",
    "py_version": "py310",
    "pytorch_version": "2.5.1",
    "role": "arn:aws:iam::123456789012:role/R",
    "sagemaker_session": SESSION,
    "tags": [{"Key": "a", "Value": "b"}],
    "tensorflow_version": "2.16",
    "transformers_version": "4.49.0",
    "volume_kms_key": "alias/volume",
    "volume_size_in_gb": 99,
}


@pytest.mark.parametrize("name", [name for name in SDK if name.endswith("Processor")])
def test_every_argument_by_its_position_reaches_the_job(name: str) -> None:
    processor = getattr(processing, name)(*(VALUES[argument] for argument in SDK[name]))
    estimator = processor._estimator({})
    reached = [*estimator.fields.values(), estimator._session, type(estimator)]
    reached += [processor._entrypoint, getattr(processor, "command", None)]
    for argument in SDK[name]:
        value = VALUES[argument]
        assert (value.subnets if argument == "network_config" else value) in reached, argument


@pytest.mark.parametrize("name", [name for name in SDK if name.endswith(".run")])
def test_run_has_the_arguments_of_the_sdk(name: str) -> None:
    run = getattr(processing, name.removesuffix(".run")).run
    assert list(inspect.signature(run).parameters)[1:] == SDK[name]


def _input(**parts: Any) -> Any:
    return SimpleNamespace(**{**vars(ProcessingInput("s3://b/in", "/opt/ml/processing/in")), **parts})


@pytest.mark.parametrize(
    ("made", "run", "message"),
    [
        ({}, {"kms_key": KEY}, "kms_key: the script is encrypted with the key of the job's outputs"),
        ({"output_kms_key": "other"}, {"kms_key": KEY}, "kms_key"),
        (
            {"command": "python3 -u"},
            {},
            r"command: 'python3 -u' is not a list\n.*command=\['python3', '-u'\]",
        ),
        ({}, {"arguments": "--all"}, "arguments: '--all' is not a list"),
        ({"network_config": {"subnets": ["a"]}}, {}, "network_config: .* is not a NetworkConfig"),
        ({}, {"inputs": ["s3://b/in"]}, r"inputs\[0\]: 's3://b/in' is not a ProcessingInput"),
        ({}, {"inputs": [_input(app_managed=True)]}, r"inputs\[0\]: app_managed is not supported"),
        ({}, {"inputs": [_input(dataset_definition={"a": 1})]}, "dataset_definition is not supported"),
        ({}, {"inputs": [_input(s3_compression_type="Gzip")]}, "data is copied as it is"),
        ({}, {"outputs": [ProcessingInput("a", "b")]}, r"outputs\[0\]: .* is not a ProcessingOutput"),
        (
            {},
            {"outputs": [SimpleNamespace(**vars(ProcessingOutput("a")), feature_store_output=1)]},
            "feature_store_output is not supported",
        ),
    ],
)
def test_what_would_have_no_effect_is_refused(
    made: dict[str, Any], run: dict[str, Any], message: str, tmp_path: Path
) -> None:
    script = tmp_path / "prepare.py"
    script.touch()
    with pytest.raises(InvalidJob) as caught:
        ScriptProcessor(image_uri="img", platform="local", **made).run(str(script), **run)
    assert re.search(message, f"{caught.value}\n{caught.value.hint}")
    assert caught.value.hint
