"""Which nodes a job has, and what reaches them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cloudtrain.errors import PlatformError
from cloudtrain.runtime.batch.start import RELAY_NODE, choose, command, node_names, own_name, starters

TWO = ["n1", "n2"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH with the programs of all sites."""
    for name in ("srun", "pbsdsh", "ssh", "aprun"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    return str(tmp_path)


def test_the_nodes_are_those_of_the_scheduler(tmp_path: Path) -> None:
    nodefile = tmp_path / "nodes"
    nodefile.write_text("n2\nn2\nn1\n")
    assert node_names({"PBS_NODEFILE": str(nodefile)}) == ["n2", "n1"]
    assert node_names({"COBALT_PARTNAME": "3832-3833,12"}) == ["nid03832", "nid03833", "nid00012"]
    assert node_names({"COBALT_PARTNAME": "gpu01,gpu02"}) == ["gpu01", "gpu02"]
    assert node_names({"SLURM_JOB_NODELIST": "n[1-2]"}) == TWO
    with pytest.raises(PlatformError, match="does not say which nodes"):
        node_names({})


def test_the_first_program_that_fits_is_chosen(path: str) -> None:
    assert choose("auto", ["n1"], {"PATH": path, "PBS_JOBID": "1"}) == ""
    assert choose("auto", TWO, {"PATH": path, "PBS_JOBID": "1"}) == "pbsdsh"
    assert choose("auto", TWO, {"PATH": path, "SLURM_JOB_ID": "1"}) == "srun"
    assert choose("auto", ["n1"], {"PATH": path, "COBALT_JOBID": "1"}) == "aprun", "this is a service node"
    assert choose("auto", TWO, {"PATH": path}) == "ssh"
    assert choose("ssh", TWO, {"PATH": path, "PBS_JOBID": "1"}) == "ssh"
    with pytest.raises(PlatformError, match="pbsdsh, ssh is not on the PATH") as caught:
        choose("auto", TWO, {"PATH": "/nowhere", "PBS_JOBID": "1"})
    assert "platform_options.start" in caught.value.hint


def test_commands() -> None:
    inner = [sys.executable, "/r.pyz", RELAY_NODE, "/relay dir", "/job"]
    assert starters("pbsdsh", TWO, "/r.pyz", ["/relay dir", "/job"]) == [["pbsdsh", "--", *inner]]
    assert starters("aprun", TWO, "/r.pyz", ["/relay dir", "/job"]) == [
        ["aprun", "-q", "-n", "2", "-N", "1", *inner]
    ]
    first, second = starters("ssh", TWO, "/r.pyz", ["/relay dir", "/job"])
    assert first[:1] == ["ssh"] and "-oBatchMode=yes" in first
    assert not any("StrictHostKeyChecking" in word for word in first), "host keys are checked"
    assert second[second.index("--") - 1 :] == ["n2", "--", *inner[:3], "'/relay dir'", "/job", "n2"]
    assert command("", ["n1"], "/r.pyz", "/job")[1:] == [
        "/r.pyz",
        "cloudtrain.runtime.start.node",
        "/job",
        "n1",
    ]


def test_a_node_finds_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "n2.cluster.org")
    assert own_name(TWO) == "n2"
    assert own_name(["n1.cluster.org", "n2.cluster.org"]) == "n2.cluster.org"
    with pytest.raises(PlatformError, match=r"calls itself n2\.cluster\.org, which is none of a, b"):
        own_name(["a", "b"])
