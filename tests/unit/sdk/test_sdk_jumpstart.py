"""The URIs of SageMaker JumpStart's models for training, from descriptions of the form that AWS's buckets have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from cloudtrain.errors import InvalidJob, NotSupported
from cloudtrain.sagemaker import Session, hyperparameters, image_uris, model_uris, script_uris

BUCKET = "jumpstart-cache-prod-us-east-1"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.0.0-gpu-py310"
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
NEWER = {**MODEL, "gated_bucket": True, "training_prepacked_script_key": "source/prepacked.tar.gz"}


@pytest.fixture(autouse=True)
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket=BUCKET)
        models = {"1.9.0": MODEL, "1.10.0": NEWER, "0.1.0": {"training_supported": False}}
        for version, model in models.items():
            s3.put_object(Bucket=BUCKET, Key=f"specs/{version}.json", Body=json.dumps(model))
        manifest = [
            {
                "model_id": "bert",
                "version": version,
                "min_version": "2.0.0",
                "spec_key": f"specs/{version}.json",
            }
            for version in models
        ]
        s3.put_object(Bucket=BUCKET, Key="models_manifest.json", Body=json.dumps(manifest))
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
    with pytest.raises(NotSupported, match=r"sagemaker\.hyperparameters\.validate"):
        hyperparameters.validate(**asked)


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
