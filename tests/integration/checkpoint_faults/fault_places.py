"""Where checkpoints go, and the machine on which the trainings run."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import botocore_data
from fault_proxy import FaultProxy

from cloudtrain.testing import S3Server

PLACES = ("s3", "file", "local and s3")
BUCKET = "faults"


@dataclass(frozen=True)
class Place:
    """Where checkpoints go; the server and its proxy are there where that is S3."""

    uri: str
    local: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    """The settings that lead to the server through the proxy."""
    server: S3Server | None = None
    proxy: FaultProxy | None = None


class Host:
    """The process of `fault_host`, from here."""

    def __init__(self, env: dict[str, str]) -> None:
        path = [str(Path(botocore_data.__file__).parent), os.environ.get("PYTHONPATH")]
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fault_host.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **env, "PYTHONPATH": os.pathsep.join(filter(None, path))},
        )

    def call(self, do: str, **arguments: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the host ended when it was asked to {do}: its standard error says why"
        return json.loads(answer)

    def __enter__(self) -> Host:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=30)


@contextlib.contextmanager
def open_place(name: str, folder: Path) -> Iterator[Place]:
    """Create one of `PLACES`, empty, below ``folder``. Each gets its own server, which the test may kill."""
    local = str(folder / "local")
    if name == "file":
        yield Place(local)
        return
    with S3Server(folder / "s3") as server, FaultProxy(server.env["AWS_ENDPOINT_URL_S3"]) as proxy:
        server.create_bucket(BUCKET)
        env = {**server.env, "AWS_ENDPOINT_URL_S3": proxy.endpoint}
        yield Place(f"s3://{BUCKET}/run", local if name != "s3" else None, env, server, proxy)
