"""Jobs in containers and on Slurm connect to their own hosts only: test_sends_nothing.py shows that of this machine."""

from __future__ import annotations

import ipaddress
import subprocess
from pathlib import Path

import pytest
from command import CLOUDTRAIN
from connections import reached, traced
from engine_daemon import IMAGE, docker_engine
from slurm_cluster import Configuration
from slurm_fixtures import SlurmOf
from test_sends_nothing import TRAIN

CONTAINERS = ipaddress.ip_network("172.16.0.0/12")
"""From which Docker takes the addresses of its networks."""


def run_job(folder: Path, *options: str) -> set[str]:
    """The addresses that a job of two hosts, which fails, and the commands about it connect to from here."""
    (folder / "train.py").write_text(TRAIN)
    found = set()
    for command in (
        [
            "submit",
            "train.py",
            "--name",
            "sent",
            "--instance-count",
            "2",
            "--processes-per-host",
            "1",
            *options,
        ],
        ["describe", "sent"],
        ["logs", "sent"],
        ["stacks", "sent", "--last"],
        ["stop", "sent"],
        ["download", "sent"],
    ):
        calls = folder / f"calls-{command[0]}"
        whole = [*traced(calls), CLOUDTRAIN, *command]
        done = subprocess.run(whole, cwd=folder, capture_output=True, text=True, timeout=300)
        assert done.returncode != 2, done.stderr
        if command[0] == "logs":
            assert done.returncode == 0, done.stderr
        found |= reached(calls)
    return found


def addresses(found: set[str]) -> set[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Those of other machines."""
    return {one for text in found if not (one := ipaddress.ip_address(text)).is_loopback}


@pytest.mark.timeout(600)
def test_containers(tmp_path: Path) -> None:
    """The engine and its containers are traced too: the client starts neither."""
    (engine_folder := tmp_path / "engine").mkdir()
    calls = tmp_path / "calls"
    with docker_engine(engine_folder, before=traced(calls)) as engine:
        options = (
            "--platform",
            "container",
            "--image",
            IMAGE,
            "--set",
            f"platform_options.engine={engine.url}",
        )
        assert addresses(run_job(tmp_path, *options)) == set()
    found = addresses(reached(calls))
    assert found, "the hosts of the job: the trace sees what it should"
    assert {one for one in found if one not in CONTAINERS} == set()


@pytest.mark.timeout(600)
def test_slurm(slurm_of: SlurmOf, tmp_path: Path) -> None:
    """The daemons of the nodes, and so the batch step, the runtime of each node and the ranks, are traced too."""
    calls = tmp_path / "calls"
    cluster = slurm_of(Configuration(name="traced", before=(*traced(calls), "--")))
    assert addresses(run_job(tmp_path, "--platform", "slurm")) == set()
    assert "127.0.0.1" in reached(calls), "the trace sees what it should"
    assert addresses(reached(calls)) == set()
    assert cluster.daemons.names
