"""Jobs on several clusters, as one platform."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloudtrain.contract import JobStatus
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.batch.cluster_platform import Ticket, Tickets
from cloudtrain.platforms.slurm import SlurmPlatform
from cloudtrain.platforms.supervised import JobFiles, JobRecord
from cloudtrain.platforms.supervised.root import LocalRoot


def test_a_cluster_that_cannot_be_reached_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path))
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text("#!/bin/sh\necho 'ssh: connect to host theta port 22: Connection refused' >&2; exit 255\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    root = LocalRoot("slurm", tmp_path / "jobs" / "slurm")
    job = JobFiles(root, root.create("here")).publish("here")
    job.write_record(JobRecord(JobStatus.COMPLETED, 1.0, started_at=2.0, ended_at=3.0))
    Tickets("slurm").write("there", Ticket("theta", "/scratch"))
    Tickets("slurm").write("nowhere", Ticket("-oProxyCommand=touch x", "/scratch"))
    with pytest.warns(UserWarning, match="left out of the list") as caught:
        assert [found.name for found in SlurmPlatform().list()] == ["here"]
    assert [str(warning.message).partition(" are ")[0] for warning in caught] == [
        "the jobs on -oProxyCommand=touch x",
        "the jobs on theta",
    ]


def test_a_ticket_stays_if_the_submission_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job may be in the queue. The command that is named then must find it."""
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path))
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f"#!/bin/sh\nkill -INT {os.getpid()}; sleep 1\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    body = {"cluster": {"login": "theta", "folder": "/scratch"}}
    with pytest.raises(KeyboardInterrupt):
        SlurmPlatform().submit(Request("slurm", "interrupted", body))
    assert Tickets("slurm").read("interrupted") == Ticket("theta", "/scratch")
