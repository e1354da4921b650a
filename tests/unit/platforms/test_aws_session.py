"""The session that reads botocore's data files faster is boto3's in all else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest

from cloudtrain.aws.aws import Aws, new_session
from cloudtrain.errors import PlatformError


@pytest.mark.parametrize("service", ["sagemaker", "s3", "sts", "logs", "ec2"])
@pytest.mark.parametrize("kind", ["service-2", "paginators-1", "endpoint-rule-set-1"])
def test_data_files_have_the_same_content(service: str, kind: str) -> None:
    assert _loader(new_session()).load_service_model(service, kind) == _loader(
        boto3.Session()
    ).load_service_model(service, kind)


def _loader(session: boto3.Session) -> Any:
    return session._session.get_component("data_loader")  # type: ignore[attr-defined]


def test_a_data_path_of_the_user_is_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine" / "2026-01-01").mkdir(parents=True)
    (tmp_path / "mine" / "2026-01-01" / "service-2.json").write_text(json.dumps({"metadata": {}}))
    monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path))
    assert "mine" in new_session().get_available_services()


def test_the_settings_are_those_of_boto3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    config.write_text(
        "[profile research]\nregion = eu-west-3\naws_access_key_id = id\naws_secret_access_key = secret\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "research")
    session = new_session()
    credentials = session.get_credentials()
    assert (session.region_name, session.profile_name) == ("eu-west-3", "research")
    assert credentials is not None and credentials.access_key == "id"


def test_a_profile_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(PlatformError, match="nobody"):
        _ = Aws().region


def test_a_session_that_is_given_is_the_one_that_is_used() -> None:
    session = boto3.Session(region_name="eu-west-3")
    assert Aws(session).session is session


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("AWS_ENDPOINT_URL", "no-url", "no-url"), ("AWS_DEFAULT_REGION", "mars-1", "mars-1")],
)
def test_settings_that_are_wrong(name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv(name, value)
    aws = Aws()
    with pytest.raises(PlatformError, match=said) as caught:
        _ = aws.client("sts"), aws.partition
    assert name in caught.value.hint
