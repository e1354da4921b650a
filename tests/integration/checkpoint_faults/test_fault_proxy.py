"""Each fault does what its name says, to a real client of a real server."""

from __future__ import annotations

import http.client
import os
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from fault_proxy import ERRORS, Fault, FaultProxy

DATA = os.urandom(3 << 20)
SUCCEED = (Fault.PASS, Fault.DELAY, Fault.SLOW_BODY)
ARRIVE = (*SUCCEED, Fault.LOST_ANSWER, Fault.CUT_ANSWER)
"""The server has done what was asked, whether or not the client knows."""


@pytest.fixture
def proxy(s3: str) -> Iterator[FaultProxy]:
    with FaultProxy(os.environ["AWS_ENDPOINT_URL_S3"]) as proxy:
        yield proxy


@cache
def session() -> boto3.Session:
    return boto3.Session()


def client(endpoint: str, fault: Fault = Fault.PASS) -> Any:
    """A client that tries once, and waits long unless there is nothing to come."""
    patience = 2 if fault == Fault.STALL else 60
    once = Config(retries={"total_max_attempts": 1}, read_timeout=patience, proxies={})
    return session().client("s3", endpoint_url=endpoint, config=once)


@pytest.mark.parametrize("fault", Fault)
def test_a_write(fault: Fault, proxy: FaultProxy, s3: str) -> None:
    proxy.choose = lambda method: fault

    def write() -> None:
        client(proxy.endpoint, fault).put_object(Bucket=s3, Key="key", Body=DATA)

    if fault in SUCCEED:
        write()
    elif fault in ERRORS:
        with pytest.raises(ClientError, match=fault.value.split()[1]):
            write()
    else:
        with pytest.raises(HTTPClientError):
            write()
    proxy.settle()
    found = client(proxy.upstream).list_objects_v2(Bucket=s3).get("Contents", [])
    assert [entry["Size"] for entry in found] == [len(DATA)] * (fault in ARRIVE)
    assert proxy.met == {fault: 1}


@pytest.mark.parametrize("fault", Fault)
def test_a_read(fault: Fault, proxy: FaultProxy, s3: str) -> None:
    client(proxy.upstream).put_object(Bucket=s3, Key="key", Body=DATA)
    proxy.choose = lambda method: fault

    def read() -> bytes:
        body: bytes = client(proxy.endpoint, fault).get_object(Bucket=s3, Key="key")["Body"].read()
        return body

    if fault in SUCCEED:
        assert read() == DATA
    else:
        with pytest.raises(ClientError if fault in ERRORS else BotoCoreError):
            read()


def test_a_request_outlives_its_client(proxy: FaultProxy, s3: str) -> None:
    """A request that is on its way when its client dies still arrives; `settle` waits for it."""
    proxy.choose = lambda method: Fault.DELAY
    url = client(proxy.endpoint).generate_presigned_url("put_object", {"Bucket": s3, "Key": "key"})
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    connection.request("PUT", url.removeprefix(proxy.endpoint), b"last words")
    connection.close()
    proxy.settle()
    assert client(proxy.upstream).get_object(Bucket=s3, Key="key")["Body"].read() == b"last words"
