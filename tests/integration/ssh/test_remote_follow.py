"""A log is followed over ssh: one command, and after a broken connection from the next byte on."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from login_node import ALIAS, LoginNode, NewNode

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.batch import remote_follow
from cloudtrain.platforms.batch.remote_follow import follow_remote
from cloudtrain.platforms.batch.remote_root import RemoteRoot
from cloudtrain.platforms.batch.ssh import SshShell

COUNT = 120


class Writer(threading.Thread):
    """A job that prints numbered lines, and ends."""

    def __init__(self, folder: Path, node: LoginNode, breaks: tuple[int, ...] = ()) -> None:
        super().__init__(daemon=True)
        folder.mkdir()
        self._folder, self._node, self._breaks = folder, node, breaks
        self.followed = threading.Event()
        """Its first line was received. A connection that breaks before is an error, and not repeated."""
        (folder / "state.json").write_text(json.dumps({"ended_at": None}))

    def run(self) -> None:
        time.sleep(0.5)
        with open(self._folder / "job.log", "w", buffering=1) as log:
            for number in range(COUNT):
                log.write(f"line {number}\n")
                self.followed.wait(60)
                if number in self._breaks:
                    self._node.break_connections()
                time.sleep(0.01)
            log.write("the last line")
        (self._folder / "state.json").write_text(json.dumps({"ended_at": 1.5}))


@pytest.mark.parametrize("breaks", [(), (30, 31, 90)])
def test_no_line_is_lost_or_repeated(node: LoginNode, tmp_path: Path, breaks: tuple[int, ...]) -> None:
    writer = Writer(tmp_path / "job", node, breaks)
    writer.start()
    shell = SshShell(ALIAS)
    lines = []
    for line in follow_remote(RemoteRoot(shell, str(tmp_path)), "job", "job.log", lambda: False):
        lines.append(line)
        writer.followed.set()
    assert lines == [*(f"line {number}" for number in range(COUNT)), "the last line"]
    if not breaks:
        assert node.logins == 1
        assert shell.trips <= 3  # the stream, and what is left at its end


def test_a_login_node_that_restarts_loses_no_line(node: LoginNode, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job/state.json").write_text('{"ended_at": null}')
    (tmp_path / "job/job.log").write_text("one\n")
    lines = follow_remote(RemoteRoot(SshShell(ALIAS), str(tmp_path)), "job", "job.log", lambda: False)
    assert next(lines) == "one"
    node.stop()
    (tmp_path / "job/job.log").write_text("one\ntwo\n")
    (tmp_path / "job/state.json").write_text('{"ended_at": 1.5}')
    threading.Timer(2.0, node.start).start()
    with pytest.warns(UserWarning, match="kraken does not accept connections: it is tried again for 10 min"):
        assert list(lines) == ["two"]


def test_a_node_that_never_answered_ends_it(node: LoginNode, tmp_path: Path) -> None:
    node.stop()
    with pytest.raises(PlatformError, match="kraken does not accept connections") as caught:
        next(follow_remote(RemoteRoot(SshShell(ALIAS), str(tmp_path)), "job", "job.log", lambda: False))
    assert caught.value.is_transient  # a client that waits for the job asks again


def test_a_job_that_cannot_record_its_end(
    node: LoginNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_follow, "LOOK_SECONDS", 0.2)
    (tmp_path / "job").mkdir()
    (tmp_path / "job/state.json").write_text('{"ended_at": null}')
    (tmp_path / "job/job.log").write_text("one\ntwo\n")
    root = RemoteRoot(SshShell(ALIAS), str(tmp_path))
    assert list(follow_remote(root, "job", "job.log", lambda: True)) == ["one", "two"]


def test_a_login_that_is_needed_ends_it(node: LoginNode, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job/state.json").write_text('{"ended_at": null}')
    (tmp_path / "job/job.log").write_text("one\n")
    lines = follow_remote(RemoteRoot(SshShell(ALIAS), str(tmp_path)), "job", "job.log", lambda: False)
    assert next(lines) == "one"
    (node.folder / "authorized_keys").write_text("")
    node.break_connections()
    with pytest.raises(PlatformError, match="kraken refused the login") as caught:
        next(lines)
    assert "cloudtrain slurm login kraken" in caught.value.hint


def test_a_removed_job_ends_it(new_node: NewNode, tmp_path: Path) -> None:
    new_node(program="/usr/bin/fish")
    (tmp_path / "job").mkdir()
    (tmp_path / "job/job.log").write_text("one\n")
    root = RemoteRoot(SshShell(ALIAS), str(tmp_path))
    assert list(follow_remote(root, "job", "job.log", lambda: False)) == ["one"]
