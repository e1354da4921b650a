"""Channels that are files of this machine, and `upload_data`: on moto's S3 and STS."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import boto3
import pytest

import cloudtrain
from cloudtrain.errors import InvalidJob, NotFound, PlatformError, StorageError
from cloudtrain.storage import open_store
from cloudtrain.submission import Submission, prepare

MEBIBYTE = 1 << 20
BUCKET = "s3://sagemaker-us-east-1-123456789012"


@pytest.fixture
def data(moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print('training')")
    folder = Path("data")
    (folder / "sub").mkdir(parents=True)
    (folder / "a.csv").write_text("1,2")
    (folder / "sub" / "b.csv").write_bytes(bytes(9 * MEBIBYTE))
    for path in folder.rglob("*.csv"):  # hashes of files that changed just now are not kept
        os.utime(path, (time.time() - 60, time.time() - 60))
    return folder


def submission(inputs: Any, **fields: Any) -> tuple[Submission, int]:
    """The prepared job, and the number of bytes read of its data."""
    read: list[int] = []
    job = {
        "entry_point": "train.py",
        "image_uri": "python:3.12",
        "instance_type": "ml.m5.xlarge",
        "role": "arn:aws:iam::123456789012:role/Train",
        "inputs": inputs,
        **fields,
    }
    return prepare(job, on_read=read.append), sum(read)


def channel_uri(prepared: Submission) -> str:
    source = prepared.request.body["InputDataConfig"][0]["DataSource"]["S3DataSource"]
    assert source["S3DataType"] == "S3Prefix"
    return str(source["S3Uri"])


def test_a_folder_goes_to_s3_under_its_content_once(data: Path) -> None:
    first, read = submission({"train": "./data"})
    uri = channel_uri(first)
    assert uri.startswith(f"{BUCKET}/cloudtrain/source/data/")
    assert read == 9 * MEBIBYTE + 3
    with pytest.raises(NotFound):  # nothing is uploaded yet, not even the bucket exists
        open_store(uri).stat("a.csv")

    said: list[str] = []
    moved: list[int] = []
    first.upload(moved.append, said.append)
    assert {entry.key: entry.size for entry in open_store(uri).list()} == {
        "a.csv": 3,
        "sub/b.csv": 9 * MEBIBYTE,
    }
    assert said == [f"Uploading channel train: 2 files, 9.4 MB, to {uri}"]
    assert sum(moved) >= 9 * MEBIBYTE + 3

    time.sleep(2.1)  # the time of the last status change of files has to be a while ago
    submission({"train": "./data"})
    again, read = submission({"train": data.absolute().as_uri()})
    assert (channel_uri(again), read) == (uri, 0)
    said.clear()
    again.upload(None, said.append)
    assert said == []

    (data / "a.csv").write_text("3,4")
    changed, _ = submission({"train": "./data"})
    assert channel_uri(changed) != uri


def test_an_interrupted_upload_continues(data: Path) -> None:
    prepared, _ = submission({"train": "./data"})
    prepared.upload()
    open_store(channel_uri(prepared)).delete(["a.csv"])
    said: list[str] = []
    prepared.upload(None, said.append)
    assert said == [f"Uploading channel train: 1 file, 3 bytes, to {channel_uri(prepared)}"]


def test_a_file_is_an_object_with_its_name(data: Path) -> None:
    prepared, _ = submission({"train": {"s3_data": "data/a.csv", "content_type": "text/csv"}})
    prepared.upload()
    folder, _, name = channel_uri(prepared).rpartition("/")
    assert (name, open_store(folder).read(name)) == ("a.csv", b"1,2")


def test_a_model_of_this_machine_is_uploaded_too(data: Path) -> None:
    prepared, _ = submission(None, model_uri=(data / "a.csv").absolute().as_uri())
    prepared.upload()
    folder, _, name = channel_uri(prepared).rpartition("/")
    assert open_store(folder).read(name) == b"1,2"


def test_data_that_changes_while_it_is_uploaded_is_refused(data: Path) -> None:
    prepared, _ = submission({"train": "./data"})
    (data / "a.csv").write_text("3,4")
    with pytest.raises(StorageError, match=r"a\.csv changed while it was being uploaded"):
        prepared.upload()
    assert "a.csv" not in [entry.key for entry in open_store(channel_uri(prepared)).list()]


def test_an_empty_folder_is_refused(data: Path) -> None:
    Path("empty").mkdir()
    with pytest.raises(InvalidJob, match="empty has no files"):
        submission({"train": "empty"})


def test_upload_data_returns_the_uris_of_the_sdk(data: Path) -> None:
    moved: list[int] = []
    uri = cloudtrain.upload_data("data", callback=moved.append)
    assert uri == f"{BUCKET}/data"
    assert [entry.key for entry in open_store(uri).list()] == ["a.csv", "sub/b.csv"]
    assert sum(moved) == 9 * MEBIBYTE + 3
    boto3.client("s3").create_bucket(Bucket="mine")
    assert cloudtrain.upload_data(data / "a.csv", "mine", "in/train") == "s3://mine/in/train/a.csv"
    secret = {"ServerSideEncryption": "AES256"}
    cloudtrain.upload_data(data, "mine", "safe", extra_args=secret, session=boto3.Session())
    for key in ("safe/a.csv", "safe/sub/b.csv"):
        assert boto3.client("s3").head_object(Bucket="mine", Key=key)["ServerSideEncryption"] == "AES256"


def test_upload_data_names_a_missing_bucket_without_an_account(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(NotFound, match="there is no bucket 'mine-not'"):
        cloudtrain.upload_data("data", "mine-not")


def test_upload_data_does_not_wait_for_a_pipe(data: Path) -> None:
    os.mkfifo("pipe")
    with pytest.raises(NotFound, match="there is no file or folder pipe"):
        cloudtrain.upload_data("pipe", "mine")


def test_upload_data_names_what_is_missing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFound, match="there is no file or folder nowhere"):
        cloudtrain.upload_data("nowhere", "mine")
    with pytest.raises(NotFound, match="there is no bucket 'mine-not'"):
        cloudtrain.upload_data("data", "mine-not")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(PlatformError, match=r"no bucket was given, and no AWS region(.|\n)*Pass bucket"):
        cloudtrain.upload_data("data")
