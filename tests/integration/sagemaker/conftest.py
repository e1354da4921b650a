"""The services that simulate AWS: one that a test scripts, and moto's."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial

import pytest
from scripted_job import REGION
from service import SageMakerService, sagemaker_service

from cloudtrain.platforms.sagemaker import SageMakerPlatform, logs

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": REGION,
}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[SageMakerService]:
    """SageMaker and CloudWatch Logs by script; the environment leads there. They need no long pauses."""
    monkeypatch.setattr(logs, "Pace", partial(logs.Pace, shortest=0.2, longest=0.5, settle=1.0))
    with sagemaker_service() as scripted:
        for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": scripted.endpoint}.items():
            monkeypatch.setenv(name, value)
        yield scripted


@pytest.fixture
def platform(service: SageMakerService) -> SageMakerPlatform:
    return SageMakerPlatform()


@pytest.fixture(scope="session")
def moto_server() -> Iterator[str]:
    """The endpoint of a moto server of this session."""
    if os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1":
        pytest.importorskip("moto.server")
    code = (
        "from moto.server import ThreadedMotoServer as S; import time;"
        "s = S('127.0.0.1', 0, verbose=False); s.start(); print(s.get_host_and_port()[1], flush=True);"
        "time.sleep(1e9)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        try:
            assert port, "the moto server did not start"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.fixture
def moto(moto_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The endpoint of a moto server that knows nothing yet; the environment leads there."""
    urllib.request.urlopen(f"{moto_server}/moto-api/reset", data=b"", timeout=30).close()
    for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": moto_server}.items():
        monkeypatch.setenv(name, value)
    return moto_server
