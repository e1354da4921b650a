"""The state folder holds secrets of jobs: no other user can read or change it, whatever it was before."""

from __future__ import annotations

import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cloudtrain._system.owned import FolderIsOpen, own_folder
from cloudtrain.errors import StorageError
from cloudtrain.storage import state_home

STRANGER = 12345
ANYONE = 0xFFFFFFFF
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(folder))
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0, 0o002, 0o022, 0o077])
def test_a_new_folder_is_private_with_any_umask(home: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        assert mode(state_home()) == 0o700
    finally:
        os.umask(before)


@pytest.mark.parametrize("open_mode", [0o755, 0o750, 0o711, 0o777, 0o770])
def test_a_folder_that_is_open_to_others_is_closed(
    home: Path, capfd: pytest.CaptureFixture[str], open_mode: int
) -> None:
    (home / "jobs").mkdir(parents=True)
    home.chmod(open_mode)
    assert mode(state_home()) == 0o700
    assert f"other users could read {home}" in capfd.readouterr().err
    state_home()
    assert capfd.readouterr().err == ""


def test_an_empty_folder_is_closed_without_a_message(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    home.mkdir(mode=0o755)
    assert mode(state_home()) == 0o700
    assert capfd.readouterr().err == ""


def test_a_folder_of_other_things_is_refused_and_not_changed(home: Path) -> None:
    home.mkdir()
    (home / "thesis.tex").touch()
    home.chmod(0o755)
    with pytest.raises(StorageError, match="has other content than cloudtrain's") as caught:
        state_home()
    assert "CLOUDTRAIN_HOME" in caught.value.hint and mode(home) == 0o755
    home.chmod(0o700)
    state_home()


def test_the_home_folder_of_the_user_is_never_closed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "jobs").mkdir(parents=True)
    home.chmod(0o755)
    monkeypatch.setenv("HOME", str(home / "me"))
    with pytest.raises(StorageError, match="has other content than cloudtrain's"):
        state_home()
    assert mode(home) == 0o755


@pytest.mark.parametrize("folder", ["/tmp", "/"])
def test_shared_folders_are_refused(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = mode(Path(folder))
    monkeypatch.setenv("CLOUDTRAIN_HOME", folder)
    with pytest.raises(StorageError):
        state_home()
    assert mode(Path(folder)) == before


def test_a_folder_that_anyone_can_replace_is_refused(home: Path) -> None:
    home.parent.chmod(0o777)
    with pytest.raises(StorageError, match="can be replaced by other users") as caught:
        state_home()
    assert f"chmod o-w {home.parent}" in caught.value.hint
    home.parent.chmod(0o1777)  # as /tmp: only the owner of a file can replace it
    state_home()


def test_a_folder_that_an_acl_opens_to_another_user_is_refused() -> None:
    """The mode shows only that the user's own group may write, which has no other members."""
    shared = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        entries = ((1, 7, ANYONE), (2, 7, STRANGER), (4, 5, ANYONE), (16, 7, ANYONE), (32, 5, ANYONE))
        acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
        os.setxattr(shared, "system.posix_acl_access", acl)
        assert mode(shared) == 0o775
        with pytest.raises(FolderIsOpen, match="its group may write"):
            own_folder(shared / "jobs", create=True)
        os.removexattr(shared, "system.posix_acl_access")
        assert own_folder(shared / "jobs", create=True) == f"{shared}/jobs"
    finally:
        shutil.rmtree(shared)


def test_a_link_of_the_user_is_followed(home: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o755)
    home.symlink_to(tmp_path / "disk")
    assert state_home() == home
    assert mode(tmp_path / "disk") == 0o700


@as_root
def test_a_folder_of_another_user_is_refused(home: Path) -> None:
    home.mkdir()
    os.chown(home, STRANGER, STRANGER)
    with pytest.raises(StorageError, match="belongs to another user"):
        state_home()


@as_root
def test_a_link_of_another_user_is_refused(home: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o700)
    home.symlink_to(tmp_path / "disk")
    os.chown(home, STRANGER, STRANGER, follow_symlinks=False)
    with pytest.raises(StorageError, match="is a link of another user"):
        state_home()


@as_root
def test_files_of_others_in_an_open_folder_are_not_used(home: Path) -> None:
    (home / "jobs").mkdir(parents=True)
    home.chmod(0o777)
    # planted by another user, who had the time
    become = f"import os; os.setgroups([]); os.setgid({STRANGER}); os.setuid({STRANGER})"
    script = f"{become}; open({str(home / 'index.db')!r}, 'w')"
    for folder in home.parents:
        if not mode(folder) & 0o001:
            folder.chmod(mode(folder) | 0o001)
    subprocess.run([sys.executable, "-c", script], check=True)
    with pytest.raises(StorageError, match=r"'index\.db' in it belongs to one of them"):
        state_home()
    assert mode(home) == 0o777
