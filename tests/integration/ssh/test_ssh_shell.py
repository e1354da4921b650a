"""Commands on a login node: whatever shell and noise it has, over one connection, and with one clear error."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from login_node import ALIAS, LoginNode, NewNode, keygen

from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.platforms.batch import control, ssh
from cloudtrain.platforms.batch.control import log_out
from cloudtrain.platforms.batch.remote_root import RemoteRoot
from cloudtrain.platforms.batch.shell import ConnectionLost
from cloudtrain.platforms.batch.ssh import SshShell

HOSTILE = 'it\'s a "name" $HOME `id` !! %s \\n \t\n#x'

NOISY = "echo 'Welcome to kraken!'; printf '\\000(\\n'; echo 'quota: 90%' >&2"


@pytest.mark.parametrize("program", ["/bin/tcsh", "/usr/bin/fish"])
def test_any_login_shell_with_any_noise(new_node: NewNode, program: str) -> None:
    node = new_node(program=program, noise=NOISY, options=f"Banner {__file__}")
    shell = SshShell(ALIAS)
    data = bytes(range(256)) * 1000
    answer = shell.run("cat; echo problem >&2; exit 7", stdin=data)
    assert (answer.code, answer.out, answer.err) == (7, data, b"problem\n")
    quoted = "'" + HOSTILE.replace("'", "'\\''") + "'"
    assert shell.run(f"printf %s {quoted} # a comment").out.decode() == HOSTILE
    assert shell.run("sh -c 'kill -9 $$'").code == 137
    with shell.stream("echo one; sleep 0.1; printf 'two\\000'") as pieces:
        assert b"".join(pieces) == b"one\ntwo\0"
    assert node.logins == 1  # one handshake for all of it


def test_a_command_that_only_a_login_shell_finds(new_node: NewNode, tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "ct-sbatch"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    (tmp_path / ".bash_profile").write_text(f"echo hello\nPATH=$PATH:{tool.parent}\n")
    new_node(noise=f"export HOME={tmp_path}")
    assert SshShell(ALIAS).run("ct-sbatch").code == 127
    assert SshShell(ALIAS, needs="ct-sbatch").run("ct-sbatch").text == "found"


def test_one_clear_error_each(node: LoginNode) -> None:
    def error() -> PlatformError:
        with pytest.raises(PlatformError) as caught:
            SshShell(ALIAS).run("touch never")
        assert not isinstance(caught.value, ConnectionLost)
        return caught.value

    node.configure(name="no-such-host.invalid")
    assert error().message == "there is no host no-such-host.invalid: its name cannot be resolved"
    node.configure(port=1)
    assert error().message == "kraken does not accept connections"
    node.configure()
    keygen(node.folder / "user")
    assert error().message == "kraken refused the login (publickey)"
    assert error().hint == "Log in once: cloudtrain slurm login kraken"
    (node.folder / "known_hosts").write_text("")
    assert error().message == "the host key of kraken is not known"
    keygen(node.folder / "other")
    key = (node.folder / "other.pub").read_text()
    (node.folder / "known_hosts").write_text(f"[127.0.0.1]:{node.port} {key}")
    assert error().message == "the host key of kraken has changed"
    assert "ssh-keygen -R" in error().hint
    node.configure("StrictHostKeyChecking no", "UserKnownHostsFile /dev/null")
    assert error().message in ("the host key of kraken is not known", "the host key of kraken has changed")
    node.configure("NoSuchOption 1")
    assert "line 7: Bad configuration option: nosuchoption" in error().message
    assert node.logins == 0


@pytest.mark.parametrize("alias", ["-oProxyCommand=touch x", "a b", "", "host;id", "$(id)"])
def test_a_name_is_never_an_option(alias: str) -> None:
    with pytest.raises(InvalidJob, match="is not the name of a host"):
        SshShell(alias).run("true")


def test_no_ssh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PlatformError, match="ssh cannot be started: No such file") as caught:
        SshShell(ALIAS).run("true")
    assert "openssh-client" in caught.value.hint


def test_a_login_shell_that_runs_nothing(new_node: NewNode) -> None:
    new_node(noise="echo This account is currently not available.; exit 1")
    with pytest.raises(PlatformError, match=r"the login shell of kraken ran no command, and exited with 1"):
        SshShell(ALIAS).run("true")


def test_a_node_that_does_not_answer(node: LoginNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "CONNECT_SECONDS", 1)
    node.break_connections()
    assert node.sshd
    node.sshd.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(PlatformError, match="kraken does not answer"):
            SshShell(ALIAS).run("true", timeout=20)
    finally:
        node.sshd.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_login_shell_that_hangs(
    new_node: NewNode, monkeypatch: pytest.MonkeyPatch, is_stream: bool
) -> None:
    """Its home folder is on a server that is away: the login succeeds, and no command begins."""
    monkeypatch.setattr(ssh, "BEGIN_SECONDS", 1.0)
    new_node(noise="echo Welcome; sleep 100")
    began = time.monotonic()
    with pytest.raises(ConnectionLost, match="kraken did not answer within 1 s"):
        if not is_stream:
            RemoteRoot(SshShell(ALIAS), "/tmp").read("file")
        with SshShell(ALIAS).stream("true") as pieces:
            next(pieces)
    assert time.monotonic() - began < 90


@pytest.mark.parametrize("closed", ["never opened", "idle for too long", "of another state folder"])
def test_many_threads_share_one_connection(
    new_node: NewNode, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    node = new_node()
    before = 0
    if closed != "never opened":
        SshShell(ALIAS).run("true")
        log_out(ALIAS)
        before = 1
    if closed == "idle for too long":
        monkeypatch.setattr(ssh, "OPEN_SECONDS", 0)
    elif closed == "of another state folder":
        monkeypatch.setenv("CLOUDTRAIN_HOME", f"{node.folder}/other")
    shell = SshShell(ALIAS)
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda number: shell.run(f"echo {number}; sleep 0.1").text, range(12)))
    assert answers == [str(number) for number in range(12)]
    assert node.logins - before == 1


def test_a_connection_that_breaks(node: LoginNode, tmp_path: Path) -> None:
    shell = SshShell(ALIAS)
    shell.run("true")
    with shell.stream(f"exec tail -f {__file__}") as pieces:
        assert next(pieces)
        node.break_connections()
        with pytest.raises(ConnectionLost, match="the connection to kraken broke"):
            for _ in pieces:
                pass
    assert shell.run("echo again").text == "again"  # a dead socket is replaced
    assert node.logins == 2
    with pytest.raises(ConnectionLost):
        shell.run(f"touch {tmp_path}/begun; kill -9 $PPID $(ps -o ppid= -p $PPID); sleep 5")
    assert (tmp_path / "begun").exists()


def test_a_connection_that_hangs(node: LoginNode) -> None:
    """The laptop slept: the process that holds the connection is there, but does not answer."""
    shell = SshShell(ALIAS)
    shell.run("true")
    listing = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True)
    [master] = [
        int(line.split()[0])
        for line in listing.stdout.splitlines()
        if f"{control.socket_folder()}/cm-" in line
    ]
    os.kill(master, signal.SIGSTOP)
    try:
        with pytest.raises(ConnectionLost, match="kraken did not answer within 1 s"):
            shell.run("true", timeout=1)
        assert shell.run("echo again").text == "again"
    finally:
        os.kill(master, signal.SIGKILL)


def test_nothing_stays_behind_when_this_process_is_killed(node: LoginNode, tmp_path: Path) -> None:
    shell = SshShell(ALIAS)
    mark = tmp_path / "followed"
    mark.write_text("line\n")
    with shell.stream(f"exec tail -f {mark}") as pieces:
        assert next(pieces) == b"line\n"
    deadline = time.monotonic() + 60
    while (
        subprocess.run(["pgrep", "-f", f"^tail -f {mark}"], check=False, capture_output=True).returncode == 0
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_sockets_are_the_user_s_own(node: LoginNode) -> None:
    SshShell(ALIAS).run("true")
    folder = control.socket_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.is_socket() for path in folder.iterdir()] == [True]
    assert control.is_logged_in(ALIAS)
    assert control.log_out(ALIAS)
    assert not control.is_logged_in(ALIAS)
    folder.chmod(0o755)
    assert control.socket_folder().stat().st_mode & 0o777 == 0o700


def test_a_slow_login_node_does_not_log_the_user_out(new_node: NewNode, tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    node = new_node(noise=f"while [ -e {slow} ]; do sleep 0.1; done")
    SshShell(ALIAS).run("true")
    slow.touch()
    with pytest.raises(ConnectionLost, match="kraken did not answer within 1 s"):
        SshShell(ALIAS).run("true", timeout=1)
    assert control.is_logged_in(ALIAS)
    slow.unlink()
    assert SshShell(ALIAS).run("echo again").out == b"again\n"
    assert node.logins == 1


@pytest.mark.parametrize("to", ["", ">&2"])
def test_an_answer_without_end(new_node: NewNode, monkeypatch: pytest.MonkeyPatch, to: str) -> None:
    monkeypatch.setattr(ssh, "LARGEST_ANSWER", 1 << 20)
    monkeypatch.setattr(ssh, "SIZE_SECONDS", 0.2)
    new_node(noise=f"yes {to}")
    with pytest.raises(PlatformError, match="kraken printed more than 1 MiB"):
        SshShell(ALIAS).run("true")
    if not to:
        with (
            pytest.raises(PlatformError, match="printed more than"),
            SshShell(ALIAS).stream("true") as pieces,
        ):
            next(pieces)
