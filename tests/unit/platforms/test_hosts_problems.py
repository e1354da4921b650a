"""Errors of ssh, and of the shell of a host, become sentences for the user."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.hosts.connection import Connection, HostDisconnected
from cloudtrain.platforms.hosts.host_list import parse_hosts
from cloudtrain.platforms.hosts.probe import Question, ask
from cloudtrain.runtime.start.messages import Beat, Inquiry, output_frames

# recorded from OpenSSH 9.2, Debian's dash and tcsh, and Python 2.7 and 3.6
ANSWERS = {
    "ssh: connect to host n1 port 22: Connection timed out": (
        255,
        "n1 does not answer",
    ),
    "ssh: connect to host n1 port 22: No route to host": (255, "n1 cannot be reached: No route to host"),
    "ssh: Could not resolve hostname n1: Name or service not known": (
        255,
        "there is no host n1: its name cannot be resolved",
    ),
    "me@n1: Permission denied (publickey,password).": (
        255,
        "n1 refused the login (publickey,password)",
    ),
    "No ED25519 host key is known for n1 and you have requested strict checking.\nHost key verification failed.": (
        255,
        "the host key of n1 is not known",
    ),
    "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nHost key verification failed.": (
        255,
        "the host key of n1 has changed",
    ),
    "sh: 1: exec: python3: not found": (127, "n1 has no Python: sh: 1: exec: python3: not found"),
    "python3: Command not found.": (1, "n1 has no Python: python3: Command not found."),
    "Unknown option: -I\nusage: python3 [option] ... [-c cmd | -m mod | file | -] [arg] ...": (
        2,
        "n1: python3 is Python 2, and cloudtrain needs 3.9 or newer",
    ),
    "cloudtrain: this is Python 3.6": (1, "n1: python3 is Python 3.6, and cloudtrain needs 3.9 or newer"),
    "Welcome to n1\nThis account is currently not available.": (
        1,
        "n1: This account is currently not available.",
    ),
    "": (255, "n1 cannot be reached: no answer in 10 s"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_the_reason_becomes_a_sentence(answer: str, tmp_path: Path) -> None:
    code, sentence = ANSWERS[answer]
    ssh = tmp_path / "ssh"
    (tmp_path / "answer").write_text(answer)
    ssh.write_text(f"#!/bin/sh\ncat {tmp_path}/answer >&2\nexit {code}\n")
    ssh.chmod(0o755)
    found = ask(Question(parse_hosts("n1"), [str(ssh)], "python3"))
    found.close()
    with pytest.raises(PlatformError) as caught:
        found.check()
    assert sentence in caught.value.message
    assert caught.value.message.count("n1")
    assert caught.value.hint


def test_without_ssh() -> None:
    found = ask(Question(parse_hosts("n1"), ["/nowhere/ssh"], "python3"))
    found.close()
    with pytest.raises(PlatformError, match="n1: /nowhere/ssh cannot be started: No such file") as caught:
        found.check()
    assert "OpenSSH" in caught.value.hint


def test_a_login_script_that_prints(tmp_path: Path) -> None:
    """The host's answer comes after whatever its login scripts print."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\necho "Welcome to n1"\nfor line; do :; done\nexec sh -c "$line"\n')
    ssh.chmod(0o755)
    found = ask(Question(parse_hosts("n1"), [str(ssh)], "python3"))
    found.close()
    found.check()
    assert found.facts["n1"].python >= [3, 9]


def _host_that(folder: Path, *does: str) -> list[str]:
    ssh = folder / "ssh"
    ssh.write_text("\n".join(["#!/bin/sh", *does, ""]))
    ssh.chmod(0o755)
    return [str(ssh)]


@pytest.mark.parametrize(
    "ending", ["exec yes 'Choose: 1 or 2'", "echo 'Choose: 1 or 2'", "printf 'Choose: 1 or 2'"]
)
def test_a_forced_command_that_prints_something_else(ending: str, tmp_path: Path) -> None:
    found = ask(Question(parse_hosts("n1"), _host_that(tmp_path, ending), "python3"))
    found.close()
    with pytest.raises(PlatformError, match=r"n1 does not run commands: it prints .*1 or 2") as caught:
        found.check()
    assert "ssh n1 python3 -V" in caught.value.hint


@pytest.mark.parametrize("answer", ["[1]", "{}", '{"time": 1}', "[" * 200_000, "nothing"])
def test_an_answer_that_is_none(answer: str, tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(f"\x020m{answer}\n")
    found = ask(Question(parse_hosts("n1"), _host_that(tmp_path, f"cat {tmp_path}/answer"), "python3"))
    found.close()
    with pytest.raises(PlatformError, match="n1 does not answer as it should"):
        found.check()


def test_a_host_that_lives_but_gives_no_answer(tmp_path: Path) -> None:
    """Its home folder hangs, for example."""
    (tmp_path / "beat").write_bytes(Beat().frames(0))
    beats = f"while cat {tmp_path}/beat; do sleep 0.02; done"
    connection = Connection(parse_hosts("n1")[0], _host_that(tmp_path, beats), "python3")
    connection.open(Inquiry())
    with pytest.raises(HostDisconnected, match=r"no answer in 0\.2 s"):
        connection.receive(0.2)
    connection.close()


def test_a_thread_that_receives_notices_that_the_connection_is_closed(tmp_path: Path) -> None:
    (tmp_path / "line").write_bytes(output_frames(0, b"a line"))
    connection = Connection(
        parse_hosts("n1")[0], _host_that(tmp_path, f"while cat {tmp_path}/line; do :; done"), "python3"
    )
    connection.open(Inquiry())
    connection.receive(30)

    def receive() -> None:
        with pytest.raises(HostDisconnected):
            while True:
                connection.receive()

    with ThreadPoolExecutor() as pool:
        receiving = pool.submit(receive)
        connection.close()
        receiving.result(120)
