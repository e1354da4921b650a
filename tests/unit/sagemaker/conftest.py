"""AWS in memory: moto, which answers botocore's requests before they leave the process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

REGION = "us-east-1"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An account with nothing in it but the default bucket."""
    import boto3
    from moto import mock_aws

    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket=f"sagemaker-{REGION}-123456789012")
        boto3.client("s3").create_bucket(Bucket="my-data")
        yield


@pytest.fixture
def toolkit(aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are sent as the SageMaker SDK sends them."""
    monkeypatch.setenv("CLOUDTRAIN_RUNTIME", "toolkit")


@pytest.fixture
def region(monkeypatch: pytest.MonkeyPatch) -> None:
    """A region, for jobs that ask AWS nothing before they are sent."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
