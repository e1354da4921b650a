"""The GPUs that hosts describe, and their price in the table of the user."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from ssh_hosts import SshHosts

from cloudtrain.cli import cli

DRIVER = """#!/bin/sh
case "$(hostname)" in n1) sleep 0.5 ;; n3) exit 9 ;; esac  # the first host answers last
echo "NVIDIA H100 80GB HBM3"
echo "NVIDIA H100 80GB HBM3"
"""


@pytest.fixture
def config(three_hosts: SshHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hosts' Python finds a driver's program in its path, which fails on n3."""
    for name, text in (
        ("nvidia-smi", DRIVER),
        ("python", f'#!/bin/sh\nPATH={tmp_path}:$PATH exec {sys.executable} "$@"\n'),
    ):
        (tmp_path / name).write_text(text)
        os.chmod(tmp_path / name, 0o755)
    options = {
        "hosts": "n1,n2,n3",
        "ssh": three_hosts.ssh_from_outside("config"),
        "python": str(tmp_path / "python"),
    }
    path = tmp_path / "config.yaml"
    prices = {"currency": "EUR", "rows": [{"platform": "hosts", "gpu_hour": 1.5}]}
    path.write_text(json.dumps({"platform": "hosts", "platform_options": options, "prices": prices}))
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(path))
    return path


@pytest.mark.usefixtures("config")
def test_hosts_describe_their_gpus_and_the_table_has_the_price() -> None:
    shown = CliRunner().invoke(
        cli, ["offers", "--gpu", "H100", "--count", "4", "--platform", "hosts", "--json"]
    )
    found = json.loads(shown.stdout)
    assert found["problems"] == []
    [offer] = found["offers"]
    assert (offer["place"], offer["hosts"], offer["gpus"], offer["available"]) == ("n1, n2", 2, 2, 2)
    assert (offer["price"], offer["currency"], offer["fits"]) == (6.0, "EUR", True)
    shown = CliRunner().invoke(cli, ["offers", "--gpu", "A100", "--platform", "hosts"])
    assert "no host with such GPUs" in shown.stderr


def test_a_host_that_is_away_hides_no_other(config: Path) -> None:
    config.write_text(config.read_text().replace("n1,n2,n3", "n1,nowhere"))
    with pytest.warns(UserWarning, match="nowhere"):
        shown = CliRunner().invoke(cli, ["offers", "--platform", "hosts", "--json"])
    [offer] = json.loads(shown.stdout)["offers"]
    assert (offer["place"], offer["hosts"], offer["available"]) == ("n1", 1, 1)
    config.write_text(config.read_text().replace("n1,nowhere", "nowhere"))
    shown = CliRunner().invoke(cli, ["offers", "--platform", "hosts", "--json"])
    assert json.loads(shown.stdout)["offers"] == []
    assert "nowhere" in json.loads(shown.stdout)["problems"][0]
