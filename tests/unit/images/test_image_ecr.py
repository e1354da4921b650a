"""cloudtrain's images in Amazon ECR, which moto plays."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cloudtrain.aws.aws import Aws
from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.images import (
    ecr_image,
    ecr_images,
    ecr_registry,
    find_flavour,
    make_ecr_repository,
)
from cloudtrain.spec import TrainingJob
from cloudtrain.submission import prepare

REGISTRY = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
FLAVOUR = find_flavour("pytorch-cuda-mpi")
JOB = {
    "image_uri": "auto",
    "framework": "pytorch",
    "platform": "sagemaker",
    "instance_type": "ml.g5.xlarge",
    "distribution": {"mpi": {}},
    "role": "arn:aws:iam::123456789012:role/Train",
}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    """An account with nothing in it."""
    from moto import mock_aws

    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mock_aws():
        yield Aws()


def _put(aws: Aws, tag: str) -> None:
    make_ecr_repository(aws, FLAVOUR.repository)
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    config = {"mediaType": "application/vnd.docker.container.image.v1+json", "size": 1, "digest": "sha256:0"}
    manifest = {"schemaVersion": 2, "mediaType": kind, "config": config, "layers": []}
    aws.client("ecr").put_image(
        repositoryName=FLAVOUR.repository, imageManifest=json.dumps(manifest), imageTag=tag
    )


def test_the_login(aws: Aws) -> None:
    registry = ecr_registry(aws)
    assert registry.address == REGISTRY
    assert registry.auth is not None
    assert registry.auth["username"] == "AWS"
    assert registry.auth["password"]


def test_a_repository_is_made_once(aws: Aws) -> None:
    assert ecr_images(aws, FLAVOUR.repository) == {}
    assert make_ecr_repository(aws, FLAVOUR.repository)
    assert not make_ecr_repository(aws, FLAVOUR.repository)
    assert ecr_images(aws, FLAVOUR.repository) == {}


def test_images_by_their_tags(aws: Aws) -> None:
    _put(aws, FLAVOUR.tag)
    found = ecr_images(aws, FLAVOUR.repository)
    assert list(found) == [FLAVOUR.tag]
    assert found[FLAVOUR.tag].uri == f"{REGISTRY}/{FLAVOUR.image}"
    assert found[FLAVOUR.tag].digest.startswith("sha256:")


def test_sagemaker_gets_the_image_that_fits(aws: Aws) -> None:
    _put(aws, FLAVOUR.tag)
    request = prepare({**JOB, "output_path": "s3://bucket/out"}).request
    assert request.body["AlgorithmSpecification"]["TrainingImage"] == f"{REGISTRY}/{FLAVOUR.image}"


@pytest.mark.parametrize("tag", [None, "2.13.0-cuda-mpi-000000000000"])
def test_an_image_that_is_not_there(aws: Aws, tag: str | None) -> None:
    if tag:
        _put(aws, tag)
    with pytest.raises(InvalidJob, match=f"{FLAVOUR.image} is not in ECR, in us-east-1") as error:
        ecr_image(TrainingJob.from_dict(JOB), aws, gpu=True)
    assert error.value.hint.endswith("cloudtrain image build pytorch-cuda-mpi --push")


def test_no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlatformError, match="no AWS region"):
        ecr_registry(Aws())
