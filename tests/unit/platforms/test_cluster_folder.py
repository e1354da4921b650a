"""The folder of a cluster: no other user may put code there, whatever the umask is."""

from __future__ import annotations

import hashlib
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


DIGEST = hashlib.sha256(b"code").hexdigest()


def others_may_write(folder: Path) -> list[Path]:
    return [path for path in (folder, *folder.rglob("*")) if stat.S_IMODE(path.stat().st_mode) & 0o022]


def place(folder: Path, job: str = "a-job") -> Path:
    """Create the folder of a job, and the file of a runtime, which is the result."""
    root = LocalBatchRoot("slurm", folder / "jobs" / "slurm")
    file = folder / "runtime" / DIGEST / "cloudtrain.pyz"
    root.provide(str(file), lambda: b"code")
    root.create(job)
    return file


def test_only_the_user_may_write(tmp_path: Path) -> None:
    folder = tmp_path / "projects" / "me"
    assert place(folder).read_bytes() == b"code"
    assert others_may_write(tmp_path / "projects") == []


def test_what_was_open_is_closed(tmp_path: Path) -> None:
    (tmp_path / "me" / "runtime" / DIGEST).mkdir(parents=True)
    (tmp_path / "me").chmod(0o755)
    assert place(tmp_path / "me").read_bytes() == b"code"
    assert others_may_write(tmp_path / "me") == []


def test_an_open_folder_that_the_user_chose_is_refused(tmp_path: Path) -> None:
    (tmp_path / "me").mkdir()
    with pytest.raises(PlatformError, match="me can be replaced by other users: all may write to it"):
        place(tmp_path / "me")


def test_a_runtime_that_was_changed_is_replaced(tmp_path: Path) -> None:
    file = place(tmp_path)
    for number, planted in enumerate((b"evil", b"", None)):
        file.unlink()
        file.write_bytes(planted) if planted is not None else file.symlink_to("/etc/passwd")
        assert place(tmp_path, f"job-{number}").read_bytes() == b"code"
        assert not file.is_symlink() and file.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(sys.platform == "win32" or os.getuid() != 0, reason="only root makes files of others")
@pytest.mark.parametrize("planted", ["runtime", f"runtime/{DIGEST}", "jobs"])
def test_what_another_user_planted_is_refused(tmp_path: Path, planted: str) -> None:
    file = place(tmp_path)
    os.chown(tmp_path / planted, 65534, 65534)
    with pytest.raises(PlatformError, match=f"{planted} belongs to another user; they could run code as you"):
        place(tmp_path)
    assert file.read_bytes() == b"code"
