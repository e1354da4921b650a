"""A web page in the user's browser reaches the S3 server's ports, but neither its objects nor its other answers.

It sends requests from another origin, or to a name whose address it has changed to this machine's (DNS rebinding).
"""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator

import pytest

from cloudtrain.storage import open_store
from cloudtrain.testing import S3Server
from cloudtrain.testing._weed import SERVICES

CONTENT = b"what only the user may read " * 1000
EVIL = "http://evil.example"
OTHER_ORIGIN, REBOUND = {"Origin": EVIL}, {"Host": "evil.example"}
PREFLIGHT = {**OTHER_ORIGIN, "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "*"}
FORM = {"Content-Type": "multipart/form-data; boundary=x"}
UPLOAD = b'--x\r\nContent-Disposition: form-data; name="file"; filename="new"\r\n\r\nforged\r\n--x--\r\n'
PATHS = (
    "/",
    "/page-test/key",
    "/buckets/page-test/key",
    "/buckets/page-test/",
    "/dir/assign",
    "/submit",
    "/status",
)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as started:
        started.create_bucket("page-test")
        assert started._weed is not None
        for port in started._weed.ports[::2]:  # the server does not wait for those that serve no S3
            wait_for(port)
        yield started


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, port
        time.sleep(0.05)


@pytest.fixture
def weed(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The port of each service. The bucket has one object."""
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    open_store("s3://page-test").write("key", CONTENT)
    assert server._weed is not None
    return dict(zip(SERVICES, server._weed.ports[::2], strict=True))


def answer(
    port: int, method: str, path: str, headers: dict[str, str], body: bytes = b""
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        response = connection.getresponse()
        return response.status, {key.lower(): value for key, value in response.getheaders()}, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize("service", SERVICES)
def test_a_page_reads_nothing(weed: dict[str, int], service: str) -> None:
    for path in PATHS:
        for headers in (OTHER_ORIGIN, REBOUND, {**OTHER_ORIGIN, **REBOUND}):
            status, allowed, content = answer(weed[service], "GET", path, headers)
            where = f"{service}{path} {headers}"
            assert CONTENT[:20] not in content, where
            assert b"<Contents>" not in content, where
            if "access-control-allow-origin" in allowed:  # the page may read the answer
                assert status >= 400 or content == b"", where


@pytest.mark.parametrize("service", SERVICES)
def test_a_page_writes_nothing(weed: dict[str, int], service: str) -> None:
    for path in PATHS:
        for headers in (OTHER_ORIGIN, REBOUND):
            for method in ("POST", "PUT", "DELETE"):
                answer(weed[service], method, path, {**headers, **FORM}, UPLOAD)
    store = open_store("s3://page-test")
    assert store.read("key") == CONTENT
    assert [info.key for info in store.list()] == ["key"]


def test_the_preflight_of_another_origin_is_refused(weed: dict[str, int]) -> None:
    status, headers, _ = answer(weed["s3"], "OPTIONS", "/page-test/key", PREFLIGHT)
    assert status == 403
    assert "access-control-allow-origin" not in headers
