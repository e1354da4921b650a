"""AWS in memory: moto, which answers botocore's requests before they leave the process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

REGION = "us-east-1"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An account with nothing in it but the default bucket and one of the user."""
    from moto import mock_aws
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mock_aws():
        for bucket in (f"sagemaker-{REGION}-{DEFAULT_ACCOUNT_ID}", "my-data"):  # a client would take 50 ms
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(bucket, REGION)
        yield


@pytest.fixture
def toolkit(aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are sent as the SageMaker SDK sends them."""
    monkeypatch.setenv("CLOUDTRAIN_RUNTIME", "toolkit")


@pytest.fixture
def region(monkeypatch: pytest.MonkeyPatch) -> None:
    """A region, for jobs that ask AWS nothing before they are sent."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
