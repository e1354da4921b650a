"""Every problem with an S3 service is one clear error that names the URI."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from cloudtrain.errors import AccessDenied, NotFound, StorageError, Unreachable
from cloudtrain.storage import Store, download_tree, open_store
from cloudtrain.testing import S3Server

CALLS = {
    "read": lambda store, file: store.read("key"),
    "write": lambda store, file: store.write("key", b"data"),
    "create": lambda store, file: store.create("key", b"data"),
    "stat": lambda store, file: store.stat("key"),
    "list": lambda store, file: list(store.list()),
    "delete": lambda store, file: store.delete(["key"]),
    "download": lambda store, file: store.download("key", file.with_name("target")),
    "upload": lambda store, file: store.upload(file, "key"),
    "upload_if_absent": lambda store, file: store.upload(file, "key", if_absent=True),
    "download_tree": lambda store, file: download_tree(store, file.with_name("tree")),
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
Call = Callable[[Store, Path], object]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"data")
    return tmp_path / "file"


@pytest.fixture
def large_file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(bytes(20 << 20))
    return tmp_path / "file"


@every_call
def test_no_such_bucket(call: Call, s3: str, file: Path) -> None:
    with pytest.raises(NotFound, match="there is no bucket 'no-such-bucket'") as raised:
        call(open_store("s3://no-such-bucket/data"), file)
    assert "s3://no-such-bucket/data" in raised.value.message
    assert [path.name for path in file.parent.iterdir()] == ["file"]


def test_no_such_bucket_for_a_large_file(s3: str, large_file: Path) -> None:
    with pytest.raises(NotFound, match="there is no bucket 'no-such-bucket'"):
        open_store("s3://no-such-bucket/data").upload(large_file, "key")


@every_call
@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_wrong_credentials(
    call: Call, name: str, s3: str, s3_server: S3Server, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "wrong-value")
    with pytest.raises(AccessDenied) as raised:
        call(open_store(f"s3://{s3}/data"), file)
    assert f"s3://{s3}/data" in raised.value.message
    assert "AWS_SECRET_ACCESS_KEY" in raised.value.hint
    secrets = [s3_server.env["AWS_SECRET_ACCESS_KEY"], "wrong-value"]
    assert not any(secret in str(raised.value) for secret in secrets)


def test_no_credentials(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AccessDenied, match="no AWS credentials were found"):
        open_store(f"s3://{s3}").read("key")


def test_no_such_profile(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    with pytest.raises(AccessDenied, match="no-such-profile"):
        open_store(f"s3://{s3}").read("key")


def test_an_endpoint_that_is_not_a_url(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "127.0.0.1")
    with pytest.raises(StorageError, match="Invalid endpoint") as raised:
        open_store(f"s3://{s3}").read("key")
    assert "AWS_ENDPOINT_URL_S3" in raised.value.hint


@every_call
def test_no_server_listens(call: Call, s3: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(Unreachable, match=f"s3://{s3}/data") as raised:
            call(open_store(f"s3://{s3}/data"), file)
    assert "AWS_ENDPOINT_URL_S3" in raised.value.hint


def test_no_server_answers(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloudtrain.storage.client.READ_TIMEOUT", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(Unreachable, match=f"s3://{s3}/key"):
            open_store(f"s3://{s3}").read("key")
