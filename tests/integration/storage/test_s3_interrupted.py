"""The server or the connection fails in the middle of a transfer."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from s3_proxy import Answer, Exchange, s3_proxy

from cloudtrain.errors import StorageError, Unreachable
from cloudtrain.storage import download_tree, open_store, upload_tree
from cloudtrain.testing import S3Server

SIZE = 96 << 20


@pytest.fixture
def doomed(monkeypatch: pytest.MonkeyPatch) -> S3Server:
    server = S3Server()
    server.start()
    try:
        server.create_bucket("data")
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        yield server
    finally:
        server.stop()


def killer(server: S3Server):
    return lambda count: os.kill(server.pid, signal.SIGKILL)


@pytest.mark.timeout(90)
def test_server_killed_in_the_middle_of_an_upload(doomed: S3Server, tmp_path: Path) -> None:
    (tmp_path / "up").write_bytes(bytes(SIZE))
    with pytest.raises(Unreachable, match="s3://data/key"):
        open_store("s3://data").upload(tmp_path / "up", "key", killer(doomed))


@pytest.mark.timeout(90)
def test_server_killed_in_the_middle_of_a_download(doomed: S3Server, tmp_path: Path) -> None:
    (tmp_path / "up").write_bytes(bytes(SIZE))
    store = open_store("s3://data")
    store.upload(tmp_path / "up", "key")
    with pytest.raises(Unreachable, match="s3://data/key"):
        store.download("key", tmp_path / "down" / "file", killer(doomed))
    assert list((tmp_path / "down").iterdir()) == []


@pytest.mark.timeout(90)
def test_server_killed_in_the_middle_of_trees(doomed: S3Server, tmp_path: Path) -> None:
    (tmp_path / "up").mkdir()
    for number in range(100):
        (tmp_path / "up" / str(number)).write_bytes(bytes(1000))
    store = open_store("s3://data")
    upload_tree(tmp_path / "up", store)
    with pytest.raises(Unreachable, match="s3://data/"):
        download_tree(store, tmp_path / "down", progress=killer(doomed))
    assert all(path.stat().st_size == 1000 for path in (tmp_path / "down").iterdir())
    with pytest.raises(Unreachable, match="s3://data/"):
        upload_tree(tmp_path / "up", store)


def cut(exchange: Exchange) -> Answer:
    status, headers, body = exchange.forward()
    return status, headers, body[: len(body) // 2]


@pytest.mark.parametrize("size", [1000, 20 << 20])
def test_a_body_whose_connection_breaks_is_read_again(
    size: int, s3: str, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(size)
    open_store(f"s3://{s3}").write("key", data)
    cuts = []

    def cut_once(exchange: Exchange) -> Answer:
        if exchange.method == "GET" and not cuts:
            cuts.append(exchange.path)
            return cut(exchange)
        return exchange.forward()

    with s3_proxy(s3_server.env["AWS_ENDPOINT_URL_S3"], cut_once) as (endpoint, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        store = open_store(f"s3://{s3}")
        store.download("key", tmp_path / "down")
        assert store.read("key") == (tmp_path / "down").read_bytes() == data
    assert cuts


@pytest.mark.parametrize("size", [1000, 20 << 20])
def test_a_body_whose_connection_always_breaks(
    size: int, s3: str, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store(f"s3://{s3}").write("key", bytes(size))
    (tmp_path / "down").write_bytes(b"old")

    def fault(exchange: Exchange) -> Answer:
        return cut(exchange) if exchange.method == "GET" else exchange.forward()

    with s3_proxy(s3_server.env["AWS_ENDPOINT_URL_S3"], fault) as (endpoint, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        store = open_store(f"s3://{s3}")
        for call in (lambda: store.read("key"), lambda: store.download("key", tmp_path / "down")):
            with pytest.raises(Unreachable, match=f"s3://{s3}/key"):
                call()
    assert [path.name for path in tmp_path.iterdir()] == ["down"]
    assert (tmp_path / "down").read_bytes() == b"old"


def test_received_bytes_are_verified(
    s3: str, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bit flipped in transit is detected by the checksum that is sent with the object."""
    open_store(f"s3://{s3}").write("key", bytes(1000))

    def fault(exchange: Exchange) -> Answer:
        status, headers, body = exchange.forward()
        return status, headers, (b"\x01" + body[1:] if exchange.method == "GET" else body)

    with s3_proxy(s3_server.env["AWS_ENDPOINT_URL_S3"], fault) as (endpoint, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        with pytest.raises(StorageError, match="the response is damaged"):
            open_store(f"s3://{s3}").download("key", tmp_path / "down")
    assert list(tmp_path.iterdir()) == []
