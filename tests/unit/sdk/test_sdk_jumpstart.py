"""The URIs of SageMaker JumpStart's models for training, from descriptions of the form that AWS's buckets have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import boto3
import pytest
from cloudtrain.sagemaker.jumpstart.estimator import JumpStartEstimator
from cloudtrain.sagemaker.jumpstart.filters import And, Not, Or
from cloudtrain.sagemaker.jumpstart.notebook_utils import list_jumpstart_models
from moto import mock_aws

from cloudtrain import Estimator
from cloudtrain.errors import InvalidJob
from cloudtrain.sagemaker import Session, hyperparameters, image_uris, model_uris, script_uris

BUCKET = "jumpstart-cache-prod-us-east-1"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.0.0-gpu-py310"
ROLE = "arn:aws:iam::123456789012:role/R"
MODEL: dict[str, Any] = {
    "training_supported": True,
    "training_artifact_key": "training/model.tar.gz",
    "training_script_key": "source/training.tar.gz",
    "hyperparameters": [
        {"name": "epochs", "type": "int", "default": 3, "scope": "algorithm"},
        {"name": "sagemaker_program", "type": "text", "default": "transfer.py", "scope": "container"},
    ],
    "training_instance_type_variants": {
        "regional_aliases": {"us-east-1": {"alias_ecr_uri_1": IMAGE}},
        "variants": {
            "g5": {"regional_properties": {"image_uri": "$alias_ecr_uri_1"}},
            "ml.g5.48xlarge": {"properties": {"training_artifact_uri": "training/large.tar.gz"}},
        },
    },
}
TRAINED: dict[str, Any] = {
    **MODEL,
    "default_training_instance_type": "ml.g5.2xlarge",
    "resource_name_base": "hf-bert",
    "training_volume_size": 99,
    "training_enable_network_isolation": True,
    "estimator_kwargs": {"encrypt_inter_container_traffic": True, "max_run": 360000},
    "metrics": [{"Name": "loss", "Regex": "loss=(.*)"}, {"Name": "f1", "Regex": "f1=(.*)"}],
    "deprecated": True,
    "deprecated_message": "Use another.",
    "training_vulnerable": True,
    "training_vulnerabilities": ["CVE-1", "CVE-2"],
}
GATED = {
    **TRAINED,
    "deprecated": False,
    "training_vulnerable": False,
    "supported_training_instance_types": ["ml.g5.2xlarge", "ml.p3.2xlarge"],
    "training_instance_type_variants": {
        "regional_aliases": {"us-east-1": {"a": IMAGE}},
        "variants": {
            "g5": {
                "regional_properties": {"image_uri": "$a"},
                "properties": {
                    "gated_model_key_env_var_value": "meta/model.tar.gz",
                    "environment_variables": {"MODE": "g5", "N": 1},
                    "hyperparameters": [{"name": "epochs", "default": 5, "scope": "algorithm"}],
                    "metrics": [{"Name": "f1", "Regex": "F1 (.*)"}],
                },
            },
            "p3": {"regional_properties": {"image_uri": "$a"}},
        },
    },
}
CHECKED: dict[str, Any] = {
    "training_supported": True,
    "hyperparameters": [
        {"name": "epochs", "type": "int", "default": 3, "min": 1, "max": 10, "scope": "algorithm"},
        {"name": "rate", "type": "float", "default": 0, "min": 0, "exclusive_max": 1, "scope": "algorithm"},
        {"name": "name", "type": "text", "default": "a", "options": ["a", "b"], "scope": "algorithm"},
        {"name": "is_big", "type": "bool", "default": "False", "scope": "algorithm"},
    ],
}
NEWER = {**MODEL, "gated_bucket": True, "training_prepacked_script_key": "source/prepacked.tar.gz"}


@pytest.fixture(autouse=True)
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket=BUCKET)
        models = {
            "bert": {"1.9.0": MODEL, "1.10.0": NEWER, "0.1.0": {"training_supported": False}, "9.0.0": {}},
            "old": {"1.0.0": TRAINED},
            "llama": {"2.1.0": GATED},
            "checked": {"1.0.0": CHECKED},
            "huggingface-tc-a": {"1.0.0": {"training_supported": False}},
        }
        manifest = []
        for name, versions in models.items():
            for version, model in versions.items():
                key = f"specs/{name}/{version}.json"
                s3.put_object(Bucket=BUCKET, Key=key, Body=json.dumps(model))
                least = "3.1.0" if version == "9.0.0" else "2.0.0"
                manifest.append({"model_id": name, "version": version, "min_version": least, "spec_key": key})
        s3.put_object(Bucket=BUCKET, Key="models_manifest.json", Body=json.dumps(manifest))
        other = {
            "model_id": "ai21-summarization-x",
            "version": "1.0",
            "spec_key": "proprietary-models/x.json",
        }
        s3.put_object(Bucket=BUCKET, Key="proprietary-sdk-manifest.json", Body=json.dumps([other]))
        s3.put_object(Bucket=BUCKET, Key="proprietary-models/x.json", Body="{}")
        yield


def test_uris_of_a_version() -> None:
    asked = {"model_id": "bert", "model_version": "1.9.0"}
    assert model_uris.retrieve(**asked, model_scope="training") == f"s3://{BUCKET}/training/model.tar.gz"
    large = model_uris.retrieve(**asked, model_scope="training", instance_type="ml.g5.48xlarge")
    assert large == f"s3://{BUCKET}/training/large.tar.gz"
    assert script_uris.retrieve(**asked, script_scope="training") == f"s3://{BUCKET}/source/training.tar.gz"
    named = {**asked, "region": None, "framework": None, "image_scope": "training"}
    assert image_uris.retrieve(**named, instance_type="ml.g5.2xlarge") == IMAGE
    with pytest.raises(InvalidJob, match=r"no image for ml\.p3\.2xlarge in us-east-1"):
        image_uris.retrieve(**named, instance_type="ml.p3.2xlarge")


def test_uris_of_the_newest_version() -> None:
    for version in ("*", "1.*"):
        asked = {"model_id": "bert", "model_version": version, "sagemaker_session": Session()}
        gated = "s3://jumpstart-private-cache-prod-us-east-1/training/model.tar.gz"
        assert model_uris.retrieve(**asked, model_scope="training") == gated
        assert script_uris.retrieve(**asked, script_scope="training").endswith("source/prepacked.tar.gz")


def test_default_hyperparameters() -> None:
    asked = {"model_id": "bert", "model_version": "*"}
    assert hyperparameters.retrieve_default(**asked) == {"epochs": "3"}
    everything = hyperparameters.retrieve_default(**asked, include_container_hyperparameters=True)
    assert everything == {"epochs": "3", "sagemaker_program": "transfer.py"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"epochs": "3", "rate": "0.1", "name": "a", "is_big": "True"}, None),
        ({"epochs": 3, "rate": 0.5, "is_big": True}, None),
        ({"epochs": "3.5"}, r"hyperparameters\.epochs: expected int, got '3\.5'"),
        ({"epochs": 0}, "epochs: expected at least 1, got 0"),
        ({"rate": "1"}, "rate: expected less than 1, got '1'"),
        ({"rate": "fast"}, "rate: expected float, got 'fast'"),
        ({"name": "c"}, "name: expected one of a, b, got 'c'"),
        ({"name": 1}, "name: expected text, got 1"),
        ({"is_big": "yes"}, "is_big: expected bool, got 'yes'"),
        ({"epoch": 3}, "the model has no 'epoch'\n  Did you mean 'epochs'"),
    ],
)
def test_hyperparameters_are_checked_against_the_description(given: dict[str, Any], says: str | None) -> None:
    asked = {"model_id": "checked", "model_version": "*", "hyperparameters": given}
    if says is None:
        hyperparameters.validate(**asked)
        return
    with pytest.raises(InvalidJob, match=says):
        hyperparameters.validate(**asked)


def test_a_mode_demands_hyperparameters() -> None:
    asked = {"model_id": "bert", "model_version": "*", "hyperparameters": {"epochs": 3}}
    hyperparameters.validate(**asked, validation_mode="validate_algorithm")
    with pytest.raises(InvalidJob, match="the model needs 'sagemaker_program'"):
        hyperparameters.validate(**asked, validation_mode="validate_all")


def _request(estimator: Estimator) -> dict[str, Any]:
    job = estimator.fit({"training": "s3://data/train"}, wait=False)
    return dict(boto3.client("sagemaker").describe_training_job(TrainingJobName=job.name))


def test_an_estimator_has_the_defaults_of_its_model() -> None:
    estimator = JumpStartEstimator(
        "old",
        role=ROLE,
        instance_type="ml.m5.xlarge",
        image_uri=IMAGE,
        tolerate_deprecated_model=True,
        tolerate_vulnerable_model=True,
        hyperparameters={"rate": "0.1"},
        metric_definitions=[{"Name": "loss", "Regex": "Loss (.*)"}],
        tags=[{"Key": "team", "Value": "a"}],
        max_run=600,
    )
    assert estimator.hyperparameters() == {"epochs": "3", "rate": "0.1"}
    assert [one["Regex"] for one in estimator.metric_definitions or ()] == ["Loss (.*)", "f1=(.*)"]
    sent = _request(estimator)
    assert sent["TrainingJobName"].startswith("hf-bert-")
    assert sent["ResourceConfig"] == {
        "InstanceCount": 1,
        "InstanceType": "ml.m5.xlarge",
        "VolumeSizeInGB": 99,
    }
    assert sent["StoppingCondition"]["MaxRuntimeInSeconds"] == 600
    assert sent["EnableNetworkIsolation"] is True
    channels = {
        one["ChannelName"]: one["DataSource"]["S3DataSource"]["S3Uri"] for one in sent["InputDataConfig"]
    }
    assert channels["model"] == f"s3://{BUCKET}/training/model.tar.gz"
    assert channels["training"] == "s3://data/train"
    own = {
        name: json.loads(sent["HyperParameters"][name])
        for name in ("sagemaker_program", "sagemaker_submit_directory")
    }
    assert own == {
        "sagemaker_program": "transfer_learning.py",
        "sagemaker_submit_directory": f"s3://{BUCKET}/source/training.tar.gz",
    }
    tags = boto3.client("sagemaker").list_tags(ResourceArn=sent["TrainingJobArn"])["Tags"]
    assert {one["Key"]: one["Value"] for one in tags} == {
        "team": "a",
        "sagemaker-sdk:jumpstart-model-id": "old",
        "sagemaker-sdk:jumpstart-model-version": "1.0.0",
    }


def test_a_gated_model_is_named_in_the_environment() -> None:
    estimator = JumpStartEstimator("llama", role=ROLE, environment={"accept_eula": "true", "N": "2"})
    sent = _request(estimator)
    assert estimator.environment == {
        "accept_eula": "true",
        "MODE": "g5",
        "N": "2",
        "SageMakerGatedModelS3Uri": "s3://jumpstart-private-cache-prod-us-east-1/meta/model.tar.gz",
    }
    assert sent["ResourceConfig"]["InstanceType"] == "ml.g5.2xlarge"
    assert "model" not in {one["ChannelName"] for one in sent["InputDataConfig"]}
    assert estimator.hyperparameters() == {"epochs": "5"}
    assert [one["Regex"] for one in estimator.metric_definitions or ()] == ["loss=(.*)", "F1 (.*)"]
    with pytest.raises(InvalidJob, match=r"no archive for ml\.p3\.2xlarge"):
        JumpStartEstimator("llama", role=ROLE, instance_type="ml.p3.2xlarge")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model_id": "old"}, r"(?s)old \* is deprecated: Use another.*tolerate_deprecated_model=True"),
        (
            {"model_id": "old", "tolerate_deprecated_model": True},
            "(?s)known vulnerabilities: CVE-1, CVE-2.*tolerate_vulnerable_model=True",
        ),
        ({"model_id": "bert"}, "instance_type: the model has no default"),
        ({"model_id": "bert", "config_name": "fast"}, "config_name: not supported"),
        ({"model_id": "bert", "hub_name": "own"}, "hub_name: not supported"),
        ({}, "model_id and model_version name a model"),
    ],
)
def test_what_an_estimator_refuses(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        JumpStartEstimator(**arguments)


def test_every_function_checks_the_flags() -> None:
    asked: dict[str, Any] = {"model_id": "old", "model_version": "*"}
    calls: list[Any] = [
        partial(image_uris.retrieve, None, None, image_scope="training", instance_type="ml.g5.2xlarge"),
        partial(model_uris.retrieve, model_scope="training"),
        partial(script_uris.retrieve, script_scope="training"),
        hyperparameters.retrieve_default,
    ]
    for call in calls:
        with pytest.raises(InvalidJob, match="deprecated"):
            call(**asked)
        with pytest.raises(InvalidJob, match="hub_arn: not supported"):
            call(**asked, hub_arn="arn")
        call(**asked, tolerate_deprecated_model=True, tolerate_vulnerable_model=True)
    with pytest.raises(InvalidJob, match="not for 'inference'"):
        image_uris.retrieve(None, None, image_scope="inference", **asked)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("brt", "*", "training"), "(?s)no model 'brt'.*Did you mean 'bert'"),
        (("bert", "3.0.0", "training"), r"(?s)no version 3\.0\.0.*0\.1\.0, 1\.9\.0, 1\.10\.0"),
        (("bert", "newest", "training"), "no version newest"),
        (("bert", "0.1.0", "training"), "cannot be trained"),
        (("bert", "*", "inference"), "(?s)not for 'inference'.*sagemaker<3"),
        ((None, None, "training"), "model_id and model_version name a model"),
    ],
)
def test_models_that_do_not_exist_are_refused(arguments: tuple[Any, Any, str], message: str) -> None:
    name, version, scope = arguments
    with pytest.raises(InvalidJob, match=message):
        script_uris.retrieve(model_id=name, model_version=version, script_scope=scope)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("true", ["ai21-summarization-x", "bert", "checked", "huggingface-tc-a", "llama", "old"]),
        ("task == tc", ["huggingface-tc-a"]),
        (And("task == tc", Or("framework == mxnet", "framework in ['huggingface']")), ["huggingface-tc-a"]),
        (And("model_id begins with b", "training_supported == True"), ["bert"]),
        (And(Not("task != tc"), "training_supported == true"), []),
        ("training_volume_size == 99", ["llama", "old"]),
        ("resource_name_base ends with t", ["llama", "old"]),
        ("deprecated_message includes Use", ["llama", "old"]),
        ("model_type == proprietary", ["ai21-summarization-x"]),
    ],
)
def test_models_are_listed_by_filters(given: Any, expected: list[str]) -> None:
    assert list_jumpstart_models(filter=given) == expected


def test_versions_of_models_are_listed() -> None:
    assert list_jumpstart_models("model_id == bert", list_versions=True) == [("bert", "1.10.0")]
    old = list_jumpstart_models("model_id == bert", list_versions=True, list_old_models=True)
    assert old == [("bert", "1.10.0"), ("bert", "1.9.0"), ("bert", "0.1.0")]
    assert "bert" in list_jumpstart_models("nothing == 1", list_incomplete_models=True)
    assert list_jumpstart_models("nothing == 1") == []


def test_a_filter_that_compares_nothing_is_refused() -> None:
    with pytest.raises(InvalidJob, match="filter: 'tc' does not compare a field"):
        list_jumpstart_models("tc")
