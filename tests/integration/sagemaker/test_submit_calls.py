"""The calls to AWS that a submission makes, on moto: at most four where the default bucket exists."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.client import BaseClient

from cloudtrain.platforms.sagemaker import SageMakerPlatform
from cloudtrain.storage import state_home
from cloudtrain.submission import prepare

ACCOUNT = "123456789012"
FIRST = ["sts.GetCallerIdentity", "s3.PutObject", "s3.PutObject", "sagemaker.CreateTrainingJob"]
"""Who am I, the source, the runtime, the job."""
NEXT = ["s3.PutObject", "sagemaker.CreateTrainingJob"]


@pytest.fixture
def calls(moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The calls since the list was cleared, refused ones too."""
    made: list[str] = []
    call = BaseClient._make_api_call

    def record(client: BaseClient, operation: str, arguments: Any) -> Any:
        made.append(f"{client.meta.service_model.service_name}.{operation}")
        return call(client, operation, arguments)

    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('training')")
    monkeypatch.setattr(BaseClient, "_make_api_call", record)
    yield made


def make_bucket(calls: list[str]) -> None:
    boto3.Session().client("s3").create_bucket(Bucket=f"sagemaker-us-east-1-{ACCOUNT}")
    calls.clear()


def submit(**fields: Any) -> None:
    """As in another process: with a platform that has asked nothing yet."""
    job = {
        "entry_point": "train.py",
        "image_uri": "python:3.12",
        "instance_type": "ml.m5.xlarge",
        "role": f"arn:aws:iam::{ACCOUNT}:role/Train",
        **fields,
    }
    prepare(job, submits=True).submit()


def test_four_calls_at_first_then_two(calls: list[str]) -> None:
    make_bucket(calls)
    submit()
    assert calls == FIRST
    for text in ("print('training')", "print('changed')"):
        calls.clear()
        Path("train.py").write_text(text)
        submit()
        assert calls == NEXT


def test_a_missing_default_bucket_costs_two_more(calls: list[str]) -> None:
    submit()
    assert calls == [*FIRST[:2], "s3.CreateBucket", *FIRST[1:]]


def test_several_hosts_cost_one_more_for_the_job_secret(calls: list[str]) -> None:
    make_bucket(calls)
    submit()
    calls.clear()
    submit(instance_count=2)
    assert calls == ["s3.PutObject", *NEXT]


def test_a_large_source_is_looked_up_before_it_is_uploaded(calls: list[str]) -> None:
    make_bucket(calls)
    submit()
    Path("weights.bin").write_bytes(os.urandom(1 << 20))
    calls.clear()
    submit(source_dir=".")
    assert calls == ["s3.HeadObject", *NEXT]
    calls.clear()
    submit(source_dir=".")
    assert calls == ["s3.HeadObject", NEXT[-1]]


def test_another_access_key_has_its_own_account(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    make_bucket(calls)
    assert SageMakerPlatform().aws.account == ACCOUNT
    assert SageMakerPlatform().aws.account == ACCOUNT
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    assert SageMakerPlatform().aws.account == ACCOUNT
    assert calls == ["sts.GetCallerIdentity"] * 2


@pytest.mark.parametrize("place", ["profile", "services"])
def test_an_endpoint_in_the_config_file_has_its_own_account(
    calls: list[str], moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    config = tmp_path / "config"
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    for host in ("127.0.0.1", "localhost"):
        endpoint = f"endpoint_url = {moto.replace('127.0.0.1', host)}\n"
        services = f"services = own\n[services own]\nsts =\n  {endpoint}"
        config.write_text(f"[default]\n{services if place == 'services' else endpoint}")
        for _ in range(2):
            assert SageMakerPlatform().aws.account == ACCOUNT
    assert calls == ["sts.GetCallerIdentity"] * 2


@pytest.mark.parametrize("damage", [b"", b"1234567890123", b"\xff" * 12])
def test_a_damaged_cache_of_accounts_is_fetched_again(calls: list[str], damage: bytes) -> None:
    assert SageMakerPlatform().aws.account == ACCOUNT
    [file] = (state_home() / "accounts").iterdir()
    assert "testing" not in file.name
    file.write_bytes(damage)
    assert SageMakerPlatform().aws.account == ACCOUNT
    assert file.read_text() == ACCOUNT
    assert calls == ["sts.GetCallerIdentity"] * 2
