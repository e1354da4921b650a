"""Conditional writes on servers that lack them, and on networks that lose the response."""

from __future__ import annotations

import logging
from pathlib import Path

import boto3
import pytest
from s3_proxy import Answer, Exchange, Fault, s3_proxy

from cloudtrain.storage import open_store
from cloudtrain.testing import S3Server

pytestmark = pytest.mark.proof(
    "S3", real="SeaweedFS 4.48, moto; failing, slow and lying proxies between. Not AWS"
)


def refuse(exchange: Exchange) -> Answer:
    if not exchange.is_conditional:
        return exchange.forward()
    message = b"<Error><Code>NotImplemented</Code><Message>A header is not implemented</Message></Error>"
    return 501, [("Content-Type", "application/xml")], message


def ignore(exchange: Exchange) -> Answer:
    """Overwrites: the header is signed, so a new request is made without it."""
    if not exchange.is_conditional:
        return exchange.forward()
    bucket, _, key = exchange.path.lstrip("/").partition("/")
    client = boto3.client("s3", endpoint_url=f"http://{exchange.upstream}")
    client.put_object(Bucket=bucket, Key=key, Body=exchange.body)
    return 200, [("ETag", '"x"')], b""


@pytest.mark.parametrize("fault", [refuse, ignore])
def test_a_server_without_them_is_detected_and_works(
    fault: Fault,
    s3: str,
    s3_server: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "up").write_bytes(b"up")
    with s3_proxy(s3_server.env["AWS_ENDPOINT_URL_S3"], fault) as (endpoint, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        store = open_store(f"s3://{s3}/data")
        with caplog.at_level(logging.WARNING, "cloudtrain.storage"):
            assert store.create("lock", b"first")
            assert not store.create("lock", b"second")
            assert store.upload(tmp_path / "up", "file", if_absent=True)
            assert not store.upload(tmp_path / "up", "lock", if_absent=True)
        assert store.read("lock") == b"first"
        assert [entry.key for entry in store.list()] == ["file", "lock"]
    assert len(caplog.records) == 1
    assert endpoint in caplog.text
    assert "two simultaneous writers may both succeed" in caplog.text


def test_a_server_with_them_is_tested_once_and_nothing_is_left(
    s3: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with s3_proxy(s3_server.env["AWS_ENDPOINT_URL_S3"], Exchange.forward) as (endpoint, requests):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        store = open_store(f"s3://{s3}/data")
        assert store.create("a", b"")
        assert store.create("b", b"")
    probe = f"/{s3}/data/.cloudtrain-tmp-probe"
    assert requests == [
        f"PUT {probe}",
        f"PUT {probe}",
        f"DELETE {probe}",
        f"PUT /{s3}/data/a",
        f"PUT /{s3}/data/b",
    ]
    assert (
        boto3.client("s3", endpoint_url=s3_server.env["AWS_ENDPOINT_URL_S3"]).list_objects_v2(Bucket=s3)[
            "KeyCount"
        ]
        == 2
    )
    assert not caplog.records


@pytest.mark.parametrize(("there", "won"), [(None, True), (b"another's", False)])
def test_a_lost_response_does_not_lose_the_race(
    there: bytes | None, won: bool, s3: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """botocore retries the request, and the retry finds the object that the first attempt wrote."""
    direct = s3_server.env["AWS_ENDPOINT_URL_S3"]
    store = open_store(f"s3://{s3}")
    if there is not None:
        store.write("lock", there)
    lost = []

    def lose_first(exchange: Exchange) -> Answer | None:
        answer = exchange.forward()
        if exchange.path.endswith("/lock") and exchange.is_conditional and not lost:
            lost.append(answer[0])
            return None
        return answer

    with s3_proxy(direct, lose_first) as (endpoint, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        assert store.create("lock", b"mine") is won
    assert lost == [200 if won else 412]
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", direct)
    assert store.read("lock") == (there or b"mine")
