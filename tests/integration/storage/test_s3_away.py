"""An S3 service that is away for a while: every use waits for it, and permanent errors are raised immediately."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from s3_proxy import Answer, Exchange, s3_proxy

from cloudtrain.errors import AccessDenied, NotFound, Unreachable
from cloudtrain.storage import Store, download_tree, open_store, upload_tree
from cloudtrain.storage.retry_policy import LIMIT_VARIABLE, PAUSE_VARIABLE, Patience
from cloudtrain.testing import S3Server

CALLS: dict[str, Callable[[Store, Path], object]] = {
    "read": lambda store, folder: store.read("key"),
    "open": lambda store, folder: store.open("key").read(),
    "write": lambda store, folder: store.write("key", b"data"),
    "write hashed": lambda store, folder: store.write("key", [memoryview(b"data")], sha256=None),
    "create": lambda store, folder: store.create(f"new-{time.monotonic_ns()}", b"data"),
    "stat": lambda store, folder: store.stat("key"),
    "list": lambda store, folder: list(store.list()),
    "delete": lambda store, folder: store.delete(["other"]),
    "download": lambda store, folder: store.download("key", folder / "target"),
    "download large": lambda store, folder: store.download("large", folder / "target"),
    "upload": lambda store, folder: store.upload(folder / "file", "key"),
    "upload large": lambda store, folder: store.upload(folder / "large", "large"),
    "download_tree": lambda store, folder: download_tree(store, folder / "tree"),
    "upload_tree": lambda store, folder: upload_tree(folder, store),
}
FAILURES = 7
"""Failed requests in a row: more than botocore would repeat."""
LARGE = 20 << 20
TRANSFER_LARGE = ("download large", "upload large", "download_tree", "upload_tree")


def unavailable(code: str) -> Answer:
    return 503, [("Content-Type", "application/xml")], f"<Error><Code>{code}</Code></Error>".encode()


OUTAGES: dict[str, Callable[[Exchange], Answer | None]] = {
    "dropped connections": lambda exchange: None,
    "503 SlowDown": lambda exchange: unavailable("SlowDown"),
}


@pytest.fixture
def folder(tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """Files to upload; the bucket has the same objects. The large ones are large where the test transfers them."""
    call = getattr(request.node, "callspec", None)
    size = LARGE if call is None or call.id.startswith(TRANSFER_LARGE) else 100
    monkeypatch.setenv(LIMIT_VARIABLE, "15")
    monkeypatch.setenv(PAUSE_VARIABLE, "0.005")
    (tmp_path / "file").write_bytes(b"data")
    (tmp_path / "large").write_bytes(os.urandom(size))
    store = open_store(f"s3://{s3}")
    store.write("key", b"data")
    store.upload(tmp_path / "large", "large")
    return tmp_path


@pytest.mark.parametrize("outage", OUTAGES.values(), ids=OUTAGES)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_call_waits_for_the_service(
    call: Callable[[Store, Path], object],
    outage: Callable[[Exchange], Answer | None],
    s3: str,
    s3_server: S3Server,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed: list[str] = []

    def fault(exchange: Exchange) -> Answer | None:
        if len(failed) < FAILURES:
            failed.append(exchange.path)
            return outage(exchange)
        return exchange.forward()

    with s3_proxy(s3_server.env["AWS_ENDPOINT_URL_S3"], fault) as (endpoint, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        call(open_store(f"s3://{s3}"), folder)
        assert len(failed) == FAILURES
        for key, name in (("key", "file"), ("large", "large")):
            assert open_store(f"s3://{s3}").read(key) == (folder / name).read_bytes()


def test_an_upload_continues_with_the_parts_that_are_missing(
    s3: str, s3_server: S3Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted: list[str] = []

    def fault(exchange: Exchange) -> Answer | None:
        if exchange.method == "PUT" and "partNumber=" in exchange.path:
            if len(accepted) == 1:
                accepted.append("")
                return None
            accepted.append(exchange.path)
        return exchange.forward()

    with s3_proxy(s3_server.env["AWS_ENDPOINT_URL_S3"], fault) as (endpoint, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        open_store(f"s3://{s3}").upload(folder / "large", "large")
    parts = [path for path in accepted if path]
    assert len(parts) == len(set(parts)) == 3


@pytest.mark.parametrize("outage", [None, *OUTAGES.values()], ids=["no outage", *OUTAGES])
@pytest.mark.parametrize("is_open", [False, True], ids=["path", "file"])
def test_a_source_is_one_request_and_in_parts_if_that_breaks(
    outage: Callable[[Exchange], Answer | None] | None,
    is_open: bool,
    s3: str,
    s3_server: S3Server,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken: list[str] = []
    moved: list[int] = []
    (folder / "source").write_bytes(os.urandom(LARGE))

    def fault(exchange: Exchange) -> Answer | None:
        if outage and exchange.method == "PUT" and "?" not in exchange.path:
            broken.append(exchange.path)
            return outage(exchange)
        return exchange.forward()

    with s3_proxy(s3_server.env["AWS_ENDPOINT_URL_S3"], fault) as (endpoint, requests):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        with open(folder / "source", "rb") as file:
            source = file if is_open else folder / "source"
            assert open_store(f"s3://{s3}").upload(source, "source", moved.append, if_absent=True)
        sent = list(requests)
        assert open_store(f"s3://{s3}").read("source") == (folder / "source").read_bytes()
    assert sent[:2] == [f"HEAD /{s3}/source", f"PUT /{s3}/source"]
    assert len(broken) == (1 if outage else 0)
    assert len(sent) == (7 if outage else 2)  # start, three parts, end
    assert sum(moved) == LARGE


def test_a_source_that_is_refused_is_sent_once(
    s3: str, s3_server: S3Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(exchange: Exchange) -> Answer | None:
        if exchange.method == "PUT":
            return 403, [], b"<Error><Code>AccessDenied</Code></Error>"
        return exchange.forward()

    with s3_proxy(s3_server.env["AWS_ENDPOINT_URL_S3"], refuse) as (endpoint, requests):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        with pytest.raises(AccessDenied):
            open_store(f"s3://{s3}").upload(folder / "large", "source", if_absent=True)
    assert requests == [f"HEAD /{s3}/source", f"PUT /{s3}/source"]


@pytest.mark.timeout(90)
@pytest.mark.parametrize("call", ["read", "open", "download large"])
def test_a_body_that_always_breaks_off_is_given_up(
    call: str, s3: str, s3_server: S3Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service answers, so the object is damaged."""
    monkeypatch.setenv(LIMIT_VARIABLE, "3600")

    def fault(exchange: Exchange) -> Answer | None:
        status, headers, data = exchange.forward()
        kept = len(data) // 2 if exchange.method == "GET" else len(data)
        if "range" in {name.lower() for name in exchange.headers}:
            kept = min(kept, 0)
        return status, headers, data[:kept]

    with s3_proxy(s3_server.env["AWS_ENDPOINT_URL_S3"], fault) as (endpoint, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        with pytest.raises(Unreachable, match=r"breaks off|broke"):
            CALLS[call](open_store(f"s3://{s3}"), folder)


def test_a_create_whose_answer_is_lost_has_created(
    s3: str, s3_server: S3Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[str] = []

    def fault(exchange: Exchange) -> Answer | None:
        answer = exchange.forward()
        if exchange.is_conditional and exchange.path.endswith("/mine") and len(lost) < FAILURES:
            lost.append(exchange.path)
            return None
        return answer

    with s3_proxy(s3_server.env["AWS_ENDPOINT_URL_S3"], fault) as (endpoint, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        store = open_store(f"s3://{s3}")
        assert store.create("mine", b"data") is True
        assert store.create("mine", b"other") is False
    assert len(lost) == FAILURES


@pytest.mark.timeout(90)
def test_the_server_is_restarted(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with S3Server(tmp_path / "s3", port=port) as server:
        server.create_bucket("restarted")
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        store = open_store("s3://restarted")
        store.write("key", b"before")
        server.stop()
        back = threading.Timer(1.0, server.start)
        back.start()
        assert store.read("key") == b"before"
        store.upload(folder / "large", "large")
        back.join()


@pytest.mark.parametrize(
    ("bucket", "secret", "error"),
    [("no-such-bucket", None, NotFound), (None, "wrong", AccessDenied)],
)
def test_a_permanent_error_is_raised_immediately(
    bucket: str | None,
    secret: str | None,
    error: type[Exception],
    s3: str,
    s3_server: S3Server,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with s3_proxy(s3_server.env["AWS_ENDPOINT_URL_S3"], Exchange.forward) as (endpoint, requests):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        if secret:
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        with pytest.raises(error):
            open_store(f"s3://{bucket or s3}").write("key", b"data")
    assert len(requests) == 1


def test_an_outage_is_reported_with_its_uri_and_error(
    s3: str,
    s3_server: S3Server,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("cloudtrain.storage.retry_policy.QUIET_SECONDS", 0.2)
    monkeypatch.setattr("cloudtrain.storage.retry_policy.default", Patience())

    def fault(exchange: Exchange) -> Answer | None:
        return exchange.forward() if caplog.records else unavailable("ServiceUnavailable")

    with s3_proxy(s3_server.env["AWS_ENDPOINT_URL_S3"], fault) as (endpoint, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        open_store(f"s3://{s3}").read("key")
    waiting, back = [record.message for record in caplog.records]
    assert waiting.startswith(f"s3://{s3}/key: the server failed (503 ServiceUnavailable); trying again")
    assert back.startswith("the storage answers again")
