"""How what a job uploads is encrypted: with the job's KMS key, or as the bucket's policy demands."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from training_requests import request

from cloudtrain.errors import AccessDenied, StorageError
from cloudtrain.platforms.sagemaker import SageMakerPlatform
from cloudtrain.submission import Submission, prepare

KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
LARGE = 9 << 20
"""Bytes that go in several parts."""
KMS, KEY_HEADER = "x-amz-server-side-encryption", "x-amz-server-side-encryption-aws-kms-key-id"


@pytest.fixture
def source(moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('training')")
    for bucket in ("out", "code"):
        boto3.Session().client("s3").create_bucket(Bucket=bucket)
    return tmp_path


def submission(**fields: Any) -> Submission:
    job = {
        "entry_point": "train.py",
        "image_uri": "python:3.12",
        "instance_type": "ml.m5.xlarge",
        "instance_count": 2,
        "role": "arn:aws:iam::123456789012:role/Train",
        "output_path": "s3://out/models",
        "output_kms_key": KEY,
        **fields,
    }
    return prepare(job)


def encryption(bucket: str) -> dict[str, str | None]:
    """The KMS keys of all objects in ``bucket``, by the first parts of their names."""
    client = boto3.Session().client("s3")
    names = [found["Key"] for found in client.list_objects_v2(Bucket=bucket).get("Contents", [])]
    heads = {name: client.head_object(Bucket=bucket, Key=name) for name in names}
    return {name.rpartition("/")[2]: head.get("SSEKMSKeyId") for name, head in heads.items()}


def test_all_that_a_job_uploads_has_the_key_of_its_outputs(source: Path) -> None:
    (source / "data").mkdir()
    (source / "data" / "large.bin").write_bytes(bytes(LARGE))
    prepared = submission(inputs={"train": "./data"})
    assert prepared.request.body["OutputDataConfig"]["KmsKeyId"] == KEY
    prepared.submit()
    assert encryption("out") == dict.fromkeys(
        ("sourcedir.tar.gz", "cloudtrain.pyz", "secret", "large.bin"), KEY
    )


def test_a_large_source_has_the_key_too(source: Path) -> None:
    (source / "weights.bin").write_bytes(os.urandom(LARGE))
    submission(source_dir=".").upload()
    assert encryption("out") == {"sourcedir.tar.gz": KEY}


def test_a_source_that_is_there_without_the_key_is_encrypted_again(source: Path) -> None:
    submission(output_kms_key=None).upload()
    assert encryption("out") == {"sourcedir.tar.gz": None}
    submission().upload()
    assert encryption("out") == {"sourcedir.tar.gz": KEY}
    before = boto3.Session().client("s3").list_objects_v2(Bucket="out")["Contents"]
    submission().upload()
    assert boto3.Session().client("s3").list_objects_v2(Bucket="out")["Contents"] == before


def test_another_bucket_has_its_own_encryption_as_in_the_sdk(source: Path) -> None:
    submission(code_location="s3://code/sources").submit()
    assert set(encryption("code").values()) == {None}


class Bucket:
    """S3 with one bucket, whose policy refuses uploads."""

    def __init__(self, allows: Callable[[Mapping[str, str]], bool], refusal: tuple[str, str]) -> None:
        self.uploads: list[tuple[str | None, str | None]] = []
        """The encryption that each upload asked for."""
        self.allows = allows
        self.refusal = refusal


DENIED = ("AccessDenied", "User is not authorized to perform: s3:PutObject with an explicit deny")


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bucket]:
    bucket = Bucket(lambda headers: headers.get(KMS) == "aws:kms", DENIED)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            is_start = self.command == "PUT" and "uploadId" not in self.path
            if is_start or self.path.endswith("?uploads"):
                bucket.uploads.append((headers.get(KMS), headers.get(KEY_HEADER)))
                if not bucket.allows(headers):
                    code, said = bucket.refusal
                    self._send(403, f"<Error><Code>{code}</Code><Message>{said}</Message></Error>")
                    return
            if self.path.endswith("?uploads"):
                result = (
                    "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"
                )
                self._send(200, result)
            elif self.path == "/":  # CreateTrainingJob
                self._send(200, "{}")
            elif self.command == "POST":
                self._send(
                    200, "<CompleteMultipartUploadResult><ETag>0</ETag></CompleteMultipartUploadResult>"
                )
            else:
                self._send(404 if self.command == "HEAD" else 200, "")

        do_HEAD = do_PUT = do_POST = answer

        def _send(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "testing")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        (tmp_path / "file").write_bytes(b"1")
        yield bucket
        server.shutdown()


@pytest.mark.parametrize("size", [100, LARGE])
@pytest.mark.parametrize("if_absent", [True, False])
def test_a_policy_that_demands_kms_is_honoured(
    size: int, if_absent: bool, strict: Bucket, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(bytes(size))
    SageMakerPlatform().upload(tmp_path / "file", "s3://strict/code/file", if_absent=if_absent)
    assert strict.uploads == [(None, None), ("aws:kms", None)]


def test_a_policy_that_demands_the_keys_of_s3_is_honoured(strict: Bucket, tmp_path: Path) -> None:
    strict.allows = lambda headers: headers.get(KMS) == "AES256"
    SageMakerPlatform().upload(tmp_path / "file", "s3://strict/code/file")
    assert strict.uploads == [(None, None), ("aws:kms", None), ("AES256", None)]


def test_a_policy_that_demands_a_key_has_a_hint_with_the_field(strict: Bucket, tmp_path: Path) -> None:
    strict.allows = lambda headers: headers.get(KEY_HEADER) == KEY
    with pytest.raises(
        AccessDenied, match=r"s3://strict/code/file: access denied: .*explicit deny"
    ) as caught:
        SageMakerPlatform().upload(tmp_path / "file", "s3://strict/code/file")
    assert "set output_kms_key to this key" in caught.value.hint
    strict.uploads.clear()
    SageMakerPlatform().upload(tmp_path / "file", "s3://strict/code/file", kms_key=KEY)
    assert strict.uploads == [("aws:kms", KEY)]


def test_a_missing_permission_is_not_a_demand(strict: Bucket, tmp_path: Path) -> None:
    said = "not authorized to perform: s3:PutObject because no identity-based policy allows the action"
    strict.allows, strict.refusal = lambda headers: False, ("AccessDenied", said)
    with pytest.raises(AccessDenied, match="identity-based") as caught:
        SageMakerPlatform().upload(tmp_path / "file", "s3://strict/code/file")
    assert strict.uploads == [(None, None)]
    assert "output_kms_key" not in caught.value.hint


@pytest.mark.parametrize("code", ["AccessDenied", "KMS.NotFoundException", "KMS.DisabledException"])
def test_a_key_that_cannot_be_used_is_an_error_about_it(code: str, strict: Bucket, tmp_path: Path) -> None:
    strict.allows, strict.refusal = lambda headers: False, (code, "the key cannot be used")
    with pytest.raises(StorageError, match="the key cannot be used") as caught:
        SageMakerPlatform().upload(tmp_path / "file", "s3://strict/code/file", kms_key=KEY)
    assert caught.value.hint.startswith("Check output_kms_key")
    assert strict.uploads == [("aws:kms", KEY)]


def test_the_runtime_and_the_secret_follow_the_request(strict: Bucket) -> None:
    """The platform gets only the request: its KmsKeyId is the key, in the bucket of its outputs."""
    strict.allows = lambda headers: True
    channel = {
        "ChannelName": "cloudtrain-secret",
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://strict/secrets/a-job/"}},
    }
    output = {"S3OutputPath": "s3://strict/out", "KmsKeyId": KEY}
    body = request("a-job", InputDataConfig=[channel], OutputDataConfig=output)
    SageMakerPlatform().submit(body)
    assert strict.uploads == [("aws:kms", KEY)]
