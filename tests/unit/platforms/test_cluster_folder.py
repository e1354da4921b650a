"""The folder of a cluster: no other user may put code there, whatever the umask is."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.batch.cluster import LocalBatchRoot

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")


@pytest.fixture(autouse=True)
def everything_is_allowed() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def others_may_write(folder: Path) -> list[Path]:
    return [path for path in (folder, *folder.rglob("*")) if stat.S_IMODE(path.stat().st_mode) & 0o022]


def place(folder: Path) -> Path:
    """Create the folder of a job, and the file of a runtime, which is the result."""
    root = LocalBatchRoot("slurm", folder / "jobs" / "slurm")
    file = folder / "runtime" / "00ff" / "cloudtrain.pyz"
    root.provide(str(file), lambda: b"code")
    root.create("a-job")
    return file


def test_only_the_user_may_write(tmp_path: Path) -> None:
    folder = tmp_path / "projects" / "me"
    assert place(folder).read_bytes() == b"code"
    assert others_may_write(tmp_path / "projects") == []


def test_what_was_open_is_closed(tmp_path: Path) -> None:
    (tmp_path / "me" / "runtime" / "00ff").mkdir(parents=True)
    (tmp_path / "me" / "runtime" / "00ff" / "cloudtrain.pyz").write_bytes(b"older")
    assert place(tmp_path / "me").read_bytes() == b"older"
    assert others_may_write(tmp_path / "me") == [tmp_path / "me"]  # the user chose it


@pytest.mark.skipif(sys.platform == "win32" or os.getuid() != 0, reason="only root makes files of others")
@pytest.mark.parametrize("planted", ["runtime", "runtime/00ff", "runtime/00ff/cloudtrain.pyz", "jobs"])
def test_what_another_user_planted_is_refused(tmp_path: Path, planted: str) -> None:
    file = place(tmp_path)
    os.chown(tmp_path / planted, 65534, 65534)
    with pytest.raises(PlatformError, match=f"{planted} belongs to another user, who could run code as you"):
        place(tmp_path)
    assert file.read_bytes() == b"code"
