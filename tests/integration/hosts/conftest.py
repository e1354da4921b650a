"""Two linked hosts, and jobs on them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from host_network import Machine
from hosts_job import AGENT, LAUNCHES, HostsJob, Launch, StartJob
from linked_hosts import linked, missing
from ssh_hosts import SshHosts, ssh_hosts


@pytest.fixture(scope="module")
def three_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    """Three hosts with ssh servers: n1, n2 and n3."""
    with ssh_hosts(3, tmp_path_factory.mktemp("h")) as hosts:
        yield hosts


@pytest.fixture
def two_hosts(tmp_path: Path) -> Iterator[list[Machine]]:
    """Two linked machines, n1 and n2."""
    with linked(2, tmp_path) as machines:
        yield machines


@pytest.fixture
def start_job(two_hosts: list[Machine], tmp_path: Path) -> Iterator[StartJob]:
    """Starts a job on n1 and n2, or only on n1."""
    with ExitStack() as stack:

        def start(script: str, launch: Launch, hosts: int = 2, **options: Any) -> HostsJob:
            job = HostsJob(two_hosts[:hosts], tmp_path, script, launch, **options)
            stack.callback(job.kill)
            return job

        yield start


@pytest.fixture(params=LAUNCHES)
def launch(request: pytest.FixtureRequest) -> Launch:
    """Every launcher."""
    if request.param.startswith("mpirun"):
        need_mpirun(request.param)
    return AGENT if request.param == "agent" else LAUNCHES[request.param]


@pytest.fixture(params=[name for name in LAUNCHES if name.startswith("mpirun")])
def mpirun(request: pytest.FixtureRequest) -> Launch:
    """Every mpirun."""
    need_mpirun(request.param)
    return LAUNCHES[request.param]


def need_mpirun(name: str) -> None:
    """Skip the test unless this version of Open MPI is installed."""
    path, version = LAUNCHES[name].mpirun, name.rpartition("-")[2]
    answer = subprocess.run([path, "--version"], capture_output=True, text=True).stdout if path else ""
    if f"(Open MPI) {version}." not in answer:
        missing(f"Open MPI {version} is not installed")
