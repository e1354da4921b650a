"""A command runs once, whatever happens to the connection."""

from __future__ import annotations

from pathlib import Path

import pytest
from login_node import ALIAS, LoginNode

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.batch import submitting
from cloudtrain.platforms.batch.shell import ConnectionLost
from cloudtrain.platforms.batch.ssh import SshShell
from cloudtrain.platforms.batch.submitting import run_once


def test_a_submission_whose_connection_breaks(node: LoginNode, tmp_path: Path) -> None:
    breaks = f"echo ran >> log; for p in $(pgrep -P {node.sshd.pid if node.sshd else 0}); do kill -9 $p; done"
    answer = run_once(
        SshShell(ALIAS), str(tmp_path), f"{breaks}; sleep 0.2; echo 4711; echo note >&2; exit 3"
    )
    assert (answer.code, answer.out, answer.err) == (3, b"4711\n", b"note\n")
    assert (tmp_path / "log").read_text() == "ran\n"
    assert node.logins == 2


def test_a_submission_without_a_connection(node: LoginNode, tmp_path: Path) -> None:
    node.stop()
    with pytest.raises(PlatformError, match="does not accept connections") as caught:
        run_once(SshShell(ALIAS), str(tmp_path), "sbatch job.sh")
    assert not isinstance(caught.value, ConnectionLost)


def test_an_answer_that_never_arrives(
    node: LoginNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitting, "ANSWER_GRACE", 0.5)
    with pytest.raises(ConnectionLost, match="did not answer within"):
        run_once(SshShell(ALIAS), str(tmp_path), "sleep 4", timeout=1)


def test_a_login_node_that_disappears_for_good(node: LoginNode, tmp_path: Path) -> None:
    """Later attempts cannot connect. That says nothing about the first one, which has run."""
    assert node.sshd
    breaks = f"echo ran >> log; kill -9 {node.sshd.pid} $(pgrep -P {node.sshd.pid})"
    with pytest.raises(ConnectionLost, match="does not accept connections"):
        run_once(SshShell(ALIAS), str(tmp_path), f"{breaks}; echo 4711")
    assert (tmp_path / "log").read_text() == "ran\n"
