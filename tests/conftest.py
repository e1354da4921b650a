"""Fixtures of all tests: no test touches the user's state or credentials, and S3 is a real server."""

from __future__ import annotations

import itertools
import os
import re
import secrets
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import warm_python
from botocore.loaders import create_loader

from cloudtrain.errors import StorageError
from cloudtrain.platforms.supervised.idle import IdleSupervisor
from cloudtrain.testing import S3Server
from cloudtrain.testing._weed import find_weed

if TYPE_CHECKING:
    from gcs_server import GCSServer

pytest_plugins = ["botocore_data", "cpu_times", "end_of_run", "pages", "second_try", "selection"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control starts background commands like this. The commands under test would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


_numbers = itertools.count()


def _new_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder with a number. pytest searches all others for the next number, for 3 ms after a thousand tests."""
    folder = factory.getbasetemp() / f"{name}_{next(_numbers)}"
    folder.mkdir(0o700)
    return folder


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _new_folder(tmp_path_factory, re.sub(r"\W", "_", request.node.name)[:26])


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home = _new_folder(tmp_path_factory, "h")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("CLOUDTRAIN_RUNTIME", raising=False)
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # it keeps the credentials that it has found once
    monkeypatch.setenv("AWS_CONFIG_FILE", str(home / "aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / "aws-credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(home / "cloudtrain"))
    monkeypatch.setenv("CLOUDTRAIN_STORAGE_PATIENCE", "2")
    monkeypatch.setenv("CLOUDTRAIN_STORAGE_PAUSE", "0.1")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One S3 server for the session; each worker of pytest-xdist has its own."""
    try:
        find_weed()
    except StorageError as error:
        if os.environ.get("CLOUDTRAIN_REQUIRE_ALL") == "1":
            raise
        pytest.skip(str(error))
    with S3Server() as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def _aws_data_read_once() -> Iterator[None]:
    """Lets all sessions of the AWS SDK share what they read from its files: 60 ms of each new session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.session.create_loader", cache(create_loader))
        yield


@pytest.fixture(scope="session", autouse=True)
def _forked_supervisors() -> Iterator[None]:
    """Forks the supervisors of local jobs from a process that has their modules: a third of a short job's CPU time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IdleSupervisor, "start", _fork_supervisor)
        yield


_start_supervisor = IdleSupervisor.start


def _fork_supervisor(
    module: str, environ: Mapping[str, str], errors: int = subprocess.DEVNULL
) -> IdleSupervisor | None:
    if not module.startswith("cloudtrain.") or {"PYTHONPATH", "LD_LIBRARY_PATH"} & environ.keys():
        return _start_supervisor(
            module, environ, errors
        )  # with what a test changes in Python, or in its libraries
    client, its = socket.socketpair()
    with its, open(os.devnull, "w") as null, open(os.dup(errors) if errors > 0 else os.devnull, "w") as log:
        docker = ("docker",) if module.startswith("cloudtrain.platforms.container.") else ()
        interpreter = replace(warm_python.SUPERVISOR, modules=(*warm_python.SUPERVISOR.modules, *docker))
        program = warm_python.start(
            ["-m", module], environ, null, log, Path("/"), interpreter, stdin=its, session=True
        )
    return IdleSupervisor(client, cast("subprocess.Popen[bytes]", program))


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a fresh bucket; the environment leads to its server."""
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    bucket = f"test-{secrets.token_hex(6)}"
    s3_server.create_bucket(bucket)
    return bucket


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GCSServer]:
    from gcs_server import start_gcs_server  # few workers run a test that needs it

    with start_gcs_server() as server:
        yield server


@pytest.fixture
def gcs(gcs_server: GCSServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a fresh bucket; the environment leads to its server."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.url)
    return gcs_server.create_bucket()
