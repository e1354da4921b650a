"""Nothing is uploaded to a default bucket of another account: its name does not prove who owns it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cloudtrain import Session
from cloudtrain.errors import AccessDenied, PlatformError
from cloudtrain.platforms.sagemaker import SageMakerPlatform

ACCOUNT = "123456789012"
DEFAULT = f"s3://sagemaker-eu-west-3-{ACCOUNT}/cloudtrain"
LARGE = 9 << 20
"""Bytes that go in several parts."""


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str | None]]]:
    """S3, where every bucket is a stranger's who lets everybody in; the requests that it was sent, and the owner
    that each expects.
    """
    requests: list[tuple[str, str | None]] = []

    class Stranger(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            owner = self.headers["x-amz-expected-bucket-owner"]
            requests.append((self.command, owner))
            self.send_response(200 if owner is None else 403)
            self.send_header("Content-Length", "0")
            self.send_header("ETag", '"0"')
            self.end_headers()

        do_HEAD = do_GET = do_PUT = do_POST = answer

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "testing")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
        yield requests
        server.shutdown()


@pytest.mark.parametrize("size", [100, LARGE])
@pytest.mark.parametrize("if_absent", [True, False])
def test_a_default_bucket_of_a_stranger_gets_nothing(
    size: int, if_absent: bool, tmp_path: Path, taken: list[tuple[str, str | None]]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(size))
    with pytest.raises(AccessDenied, match="sagemaker-eu-west-3") as caught:
        SageMakerPlatform().upload(path, f"{DEFAULT}/file", if_absent=if_absent)
    assert f"must belong to account {ACCOUNT}" in caught.value.hint
    assert {owner for _, owner in taken} == {ACCOUNT}


def test_a_session_does_not_use_it(taken: list[tuple[str, str | None]]) -> None:
    session = Session(default_bucket=f"sagemaker-eu-west-3-{ACCOUNT}")
    with pytest.raises(PlatformError, match="sagemaker-eu-west-3") as caught:
        session.default_bucket()
    assert f"must belong to account {ACCOUNT}" in caught.value.hint
    assert taken == [("HEAD", ACCOUNT)]


def test_a_bucket_of_another_account_is_not_read(tmp_path: Path, taken: list[tuple[str, str | None]]) -> None:
    store = SageMakerPlatform().open_store(DEFAULT)
    for ask in (
        lambda: list(store.list()),
        lambda: store.stat("file"),
        lambda: store.download("file", tmp_path / "file"),
        lambda: store.delete(["file"]),
    ):
        with pytest.raises(AccessDenied):
            ask()
    assert {owner for _, owner in taken} == {ACCOUNT}


def test_any_other_bucket_may_be_of_another_account(
    tmp_path: Path, taken: list[tuple[str, str | None]]
) -> None:
    (tmp_path / "file").write_bytes(b"1")
    SageMakerPlatform().upload(tmp_path / "file", "s3://shared-by-a-team/file", if_absent=False)
    assert taken == [("PUT", None)]
