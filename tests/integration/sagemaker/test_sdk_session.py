"""`Session`, `get_execution_role` and the copies of `sagemaker.s3`, on moto."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import boto3
import pytest

from cloudtrain import Session, execution_role, get_execution_role
from cloudtrain.errors import CloudtrainError, JobNotFound, NotFound, NotSupported, PlatformError
from cloudtrain.sagemaker.s3 import S3Downloader, S3Uploader

ACCOUNT = "123456789012"
BUCKET = f"sagemaker-us-east-1-{ACCOUNT}"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/service-role/Train"


@pytest.fixture(autouse=True)
def no_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def buckets() -> list[str]:
    return [found["Name"] for found in boto3.client("s3").list_buckets()["Buckets"]]


def test_the_default_bucket_is_made_once(moto: str) -> None:
    session = Session()
    assert buckets() == []
    assert session.default_bucket() == session.default_bucket() == BUCKET
    assert buckets() == [BUCKET]
    assert Session(default_bucket="mine").default_bucket() == "mine"
    assert sorted(buckets()) == ["mine", BUCKET]
    assert (session.account_id(), session.boto_region_name) == (ACCOUNT, "us-east-1")


def test_files_go_to_s3_and_back(moto: str, tmp_path: Path) -> None:
    session = Session()
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    (data / "a.csv").write_text("1,2")
    (data / "sub" / "b.csv").write_text("3,4")
    uri = session.upload_data(str(data), key_prefix="in/train")
    assert uri == f"s3://{BUCKET}/in/train"
    assert session.list_s3_files(BUCKET, "in/") == ["in/train/a.csv", "in/train/sub/b.csv"]
    assert session.read_s3_file(BUCKET, "in/train/a.csv") == "1,2"
    back = tmp_path / "back"
    assert session.download_data(str(back), BUCKET, "in/train") == [
        str(back / "a.csv"),
        str(back / "sub" / "b.csv"),
    ]
    assert (back / "sub" / "b.csv").read_text() == "3,4"
    assert session.download_data(back, BUCKET, "in/train/sub/b.csv") == [str(back / "b.csv")]
    with pytest.warns(UserWarning, match="nothing to download"):
        assert session.download_data(back, BUCKET, "nothing") == []
    with pytest.raises(NotFound, match="nowhere"):
        session.download_data(back, "nowhere", "a")
    with pytest.raises(NotSupported, match="ExtraArgs"):
        session.download_data(back, BUCKET, "in", {"RequestPayer": "requester"})


def test_uploader_and_downloader(moto: str, tmp_path: Path) -> None:
    Session().default_bucket()
    (tmp_path / "a.csv").write_text("1,2")
    target = f"s3://{BUCKET}/x"
    assert S3Uploader.upload(str(tmp_path / "a.csv"), target) == f"{target}/a.csv"
    assert S3Uploader.upload_string_as_file_body("text", f"{target}/t.txt") == f"{target}/t.txt"
    S3Uploader.upload_bytes(b"\xff", f"{target}/b.bin", kms_key="alias/mine", sagemaker_session=Session())
    head = boto3.client("s3").head_object(Bucket=BUCKET, Key="x/b.bin")
    assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", "alias/mine")
    assert S3Downloader.list(target) == [f"{target}/{name}" for name in ("a.csv", "b.bin", "t.txt")]
    assert (S3Downloader.read_file(f"{target}/t.txt"), S3Downloader.read_bytes(f"{target}/b.bin")) == (
        "text",
        b"\xff",
    )
    assert S3Downloader.download(f"{target}/a.csv", str(tmp_path / "d")) == [str(tmp_path / "d" / "a.csv")]
    with pytest.raises(CloudtrainError, match="is not text"):
        S3Downloader.read_file(f"{target}/b.bin")


def test_the_role_of_credentials_that_belong_to_one(moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = json.dumps({"Version": "2012-10-17", "Statement": []})
    boto3.client("iam").create_role(RoleName="Train", Path="/service-role/", AssumeRolePolicyDocument=policy)
    keys = boto3.client("sts").assume_role(RoleArn=ROLE, RoleSessionName="me")["Credentials"]
    session = boto3.Session(
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
    )
    assert get_execution_role(Session(session)) == get_execution_role(session) == ROLE
    boto3.client("iam").delete_role(RoleName="Train")
    assert get_execution_role(session) == f"arn:aws:iam::{ACCOUNT}:role/Train"


def test_the_role_of_the_config_file(moto: str, tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match=r"(?s)is not a role.*config\.yaml"):
        get_execution_role()
    (tmp_path / "cloudtrain").mkdir()
    (tmp_path / "cloudtrain" / "config.yaml").write_text(f"role: {ROLE}\n")
    assert get_execution_role() == ROLE


@pytest.mark.parametrize("metadata", ["own", "instance", "broken"])
def test_the_role_of_a_sagemaker_notebook(
    metadata: str, moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "resource-metadata.json"
    monkeypatch.setattr(execution_role, "METADATA", file)
    if metadata == "own":
        file.write_text(json.dumps({"ExecutionRoleArn": ROLE}))
        urllib.request.urlopen(f"{moto}/moto-api/reset", data=b"", timeout=30).close()
    elif metadata == "instance":
        boto3.client("sagemaker").create_notebook_instance(
            NotebookInstanceName="mine", InstanceType="ml.t3.medium", RoleArn=ROLE
        )
        file.write_text(json.dumps({"ResourceName": "mine"}))
    else:
        file.write_text("{")
        with pytest.raises(PlatformError, match="is not a role"):
            get_execution_role()
        return
    assert get_execution_role() == Session().get_caller_identity_arn() == ROLE


def test_a_session_finds_only_jobs_of_sagemaker(moto: str) -> None:
    with pytest.raises(JobNotFound):
        Session().describe_training_job("none")
    assert Session().expand_role(ROLE) == ROLE
    with pytest.raises(PlatformError, match="role Missing"):
        Session().expand_role("Missing")
