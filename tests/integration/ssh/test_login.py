"""``cloudtrain slurm login``: the user answers once, in a terminal, and later commands ask nothing."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from login_node import ALIAS, LoginNode, keygen

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.batch.ssh import SshShell

PASSPHRASE = "correct horse"


def in_terminal(command: list[str], answers: dict[str, str]) -> tuple[int, str]:
    """Run ``command`` in its own terminal, and answer its questions. Returns its exit code and its output."""
    given = dict.fromkeys(answers, 0)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "cloudtrain", *command])
    shown = ""
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:  # Linux: the other side is closed
            break
        if not data:
            break
        shown += data.decode(errors="replace")
        for question, answer in answers.items():
            while given[question] < shown.count(question):
                given[question] += 1
                os.write(terminal, (answer + "\n").encode())
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown


def cloudtrain(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cloudtrain", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture
def asking(node: LoginNode, monkeypatch: pytest.MonkeyPatch) -> LoginNode:
    """A node that wants a passphrase, and whose key is new."""
    config = node.folder / "config.yaml"
    config.write_text("slurm: {profiles: {theta: {login: kraken}}}")
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(config))
    for name in ("SSH_AUTH_SOCK", "SSH_ASKPASS", "DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    keygen(node.folder / "user", PASSPHRASE)
    (node.folder / "authorized_keys").write_text((node.folder / "user.pub").read_text())
    (node.folder / "known_hosts").write_text("")
    return node


def test_a_login_serves_all_later_commands(asking: LoginNode) -> None:
    with pytest.raises(PlatformError, match="the host key of kraken is not known"):
        SshShell(ALIAS).run("true")
    questions = {"(yes/no": "yes", "Enter passphrase": PASSPHRASE}
    code, shown = in_terminal(["slurm", "login", "theta", "--keep", "30m"], questions)
    assert code == 0, shown
    said = re.sub(r"\s+", " ", shown)
    assert re.search(
        r"Logged in to theta: \S+ answers. The login stays open until it was not used for 30 min", said
    )
    assert asking.logins == 1

    assert SshShell(ALIAS).run("echo works").text == "works"
    assert cloudtrain("slurm", "login", "theta").stdout.startswith("There is a login to theta already.")
    assert asking.logins == 1
    assert cloudtrain("slurm", "logout", "theta").stdout == "Logged out of theta.\n"
    assert cloudtrain("slurm", "logout", "theta").stdout == "There is no login to theta.\n"
    with pytest.raises(PlatformError, match="kraken refused the login") as caught:
        SshShell(ALIAS).run("true")
    assert caught.value.hint == "Log in once: cloudtrain slurm login kraken"


@pytest.mark.soak  # sshd delays the answers to wrong keys
def test_a_login_that_fails(asking: LoginNode) -> None:
    asking.trust()
    code, shown = in_terminal(["slurm", "login", "theta"], {"Enter passphrase": "wrong"})
    assert code == 1
    assert "the login to kraken failed" in shown
    assert "ssh -v kraken true" in shown
    done = cloudtrain("slurm", "login", "theta", "--keep", "soon")
    assert (done.returncode, "'soon' is not a time" in done.stderr) == (2, True)


def test_a_login_that_the_configuration_forbids(node: LoginNode, tmp_path: Path) -> None:
    done = cloudtrain("slurm", "login", "-oProxyCommand=touch x")
    assert done.returncode == 2
    done = cloudtrain("slurm", "login", "--", "-oProxyCommand=touch x")
    assert "is not the name of a host" in done.stderr
