"""Outputs are copied from a cluster: whole, also if the connection breaks, and never to another place."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from login_node import ALIAS, LoginNode

from cloudtrain.errors import NotFound, PlatformError, StorageError
from cloudtrain.platforms.batch.remote_download import download_remote
from cloudtrain.platforms.batch.remote_root import RemoteRoot
from cloudtrain.platforms.batch.shell import LocalShell
from cloudtrain.platforms.batch.ssh import SshShell

DATA = os.urandom(3 << 20)


def test_a_file_continues_after_a_broken_connection(node: LoginNode, tmp_path: Path) -> None:
    source = tmp_path / "it's a model.bin"
    source.write_bytes(DATA)
    (tmp_path / "to").mkdir()
    counts: list[int] = []

    def progress(count: int) -> None:
        if sum(counts) < 1 << 20 <= sum(counts) + count:
            node.break_connections()
        counts.append(count)

    target = download_remote(SshShell(ALIAS), source.as_uri(), tmp_path / "to", progress)
    assert target.read_bytes() == DATA
    assert sum(counts) == len(DATA)
    assert [path.name for path in (tmp_path / "to").iterdir()] == [source.name]
    with pytest.raises(NotFound, match="none is gone"):
        download_remote(SshShell(ALIAS), (tmp_path / "none").as_uri(), tmp_path / "to")


@pytest.mark.parametrize("tool", ["wc", "tar"])
def test_a_tool_of_the_cluster_that_fails(tmp_path: Path, tool: str) -> None:
    program = tmp_path / "bin" / tool
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho none; echo 'Permission denied' >&2\n")
    program.chmod(0o755)
    shell = LocalShell({"PATH": f"{program.parent}:{os.environ['PATH']}"})
    (tmp_path / "model.bin").write_bytes(b"x")
    if tool == "wc":
        with pytest.raises(StorageError, match="cannot be read: Permission denied"):
            download_remote(shell, (tmp_path / "model.bin").as_uri(), tmp_path)
    else:
        with pytest.raises(PlatformError, match="the answer of tar on this machine is not an archive"):
            RemoteRoot(shell, str(tmp_path)).snapshot(None)


def test_a_job_that_cannot_be_placed_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tar").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "tar").chmod(0o755)
    root = RemoteRoot(LocalShell({"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}), f"{tmp_path}/jobs")
    draft = root.create("job")
    root.write(f"{draft}/secrets.json", b"{}")
    with pytest.raises(PlatformError, match="cannot be used"):
        root.publish(draft, "job")
    assert list((tmp_path / "jobs").iterdir()) == []


def _file(archive: tarfile.TarFile, name: str) -> None:
    member = tarfile.TarInfo(name)
    member.size = 1
    archive.addfile(member, io.BytesIO(b"x"))


def _link(archive: tarfile.TarFile, name: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, "/etc"
    archive.addfile(member)


@pytest.mark.parametrize(
    ("add", "names"),
    [(_file, ["./../outside"]), (_file, ["/tmp/outside"]), (_link, ["./link"]), (_file, ["./a", "./a"])],
)
def test_a_hostile_archive(
    tmp_path: Path, add: Callable[[tarfile.TarFile, str], None], names: list[str]
) -> None:
    with tarfile.open(tmp_path / "hostile.tar", "w") as archive:
        for name in names:
            add(archive, name)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/tar").write_text(f"#!/bin/sh\ncat {tmp_path}/hostile.tar\n")
    (tmp_path / "bin/tar").chmod(0o755)
    (tmp_path / "model").mkdir()
    (tmp_path / "to").mkdir()
    shell = LocalShell({**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
    try:
        download_remote(shell, (tmp_path / "model").as_uri(), tmp_path / "to")
    except StorageError:
        assert add is _file
    assert list((tmp_path / "to").rglob("*")) == []
    assert not (tmp_path / "outside").exists()
