"""Two linked hosts, and jobs on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hosts_job import LAUNCHERS, HostsJob, StartJob
from network import Machine, Network, NetworkError


@pytest.fixture
def two_hosts(tmp_path: Path) -> Iterator[list[Machine]]:
    """Two linked machines, n1 and n2."""
    with ExitStack() as stack:
        try:
            network = stack.enter_context(Network(2, tmp_path))
        except NetworkError as error:
            if os.environ.get("CLOUDTRAIN_REQUIRE_ALL") == "1":
                raise
            pytest.skip(str(error))
        yield network.machines


@pytest.fixture
def start_job(two_hosts: list[Machine], tmp_path: Path) -> Iterator[StartJob]:
    """Starts a job on n1 and n2, or on the first of them."""
    with ExitStack() as stack:

        def start(script: str, launch: dict[str, Any], hosts: int = 2, **options: Any) -> HostsJob:
            job = HostsJob(two_hosts[:hosts], tmp_path, script, launch, **options)
            stack.callback(job.close)
            return job

        yield start


@pytest.fixture(params=LAUNCHERS)
def launch(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each launcher in turn."""
    return LAUNCHERS[request.param]
