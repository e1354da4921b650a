"""The secret of the ranks: given by the job, or kept in a file of the user."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloudtrain.distributed import CollectiveError
from cloudtrain.distributed.negotiation.secret import find_secret, session_key
from cloudtrain.link.secret import RANKS_FILE, RANKS_VARIABLE

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / RANKS_FILE


def test_the_job_has_one(tmp_path: Path, file: Path) -> None:
    (tmp_path / RANKS_FILE).write_text("of the job")
    for one_machine in (True, False):
        assert find_secret(one_machine, {"CLOUDTRAIN_RUN_DIR": str(tmp_path)}) == "of the job"
        assert find_secret(one_machine, {RANKS_VARIABLE: "given"}) == "given"
    assert not file.exists()


def test_ranks_of_one_machine_share_a_file_that_only_their_user_can_read(file: Path) -> None:
    with ThreadPoolExecutor(8) as ranks:
        secrets = set(ranks.map(lambda _: find_secret(True, {}), range(40)))
    [secret] = secrets
    assert len(secret) == 64
    assert stat.filemode(file.stat().st_mode) == "-rw-------"
    assert file.read_text() == secret
    assert [path.name for path in file.parent.iterdir()] == [RANKS_FILE]


def test_ranks_of_several_machines_share_no_file(file: Path) -> None:
    assert find_secret(False, {}) == ""
    assert not file.exists()


@needs_root
@pytest.mark.parametrize("damage", ["readable", "foreign", "empty", "link", "fifo"])
def test_a_file_that_others_can_read_is_refused(file: Path, tmp_path: Path, damage: str) -> None:
    find_secret(True, {})
    if damage == "readable":
        file.chmod(0o640)
    elif damage == "foreign":
        os.chown(file, 65534, 65534)
    elif damage == "empty":
        file.write_text("")
    elif damage == "link":
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    else:
        file.unlink()
        os.mkfifo(file, 0o600)
    with pytest.raises(CollectiveError, match="is not a file that only this user can read") as refused:
        find_secret(True, {})
    assert "Remove it" in str(refused.value.hint)


def test_without_a_home_the_file_is_in_a_private_temporary_folder(tmp_path: Path) -> None:
    program = (
        "from cloudtrain.distributed.negotiation.secret import find_secret; print(find_secret(True, {}))"
    )
    (tmp_path / "a-file").touch()
    environ = {**os.environ, "CLOUDTRAIN_HOME": str(tmp_path / "a-file" / "home"), "TMPDIR": str(tmp_path)}
    found = [
        subprocess.run(
            [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
        ).stdout.strip()
        for _ in range(2)
    ]
    file = tmp_path / f"cloudtrain-{os.getuid()}" / RANKS_FILE
    assert found == [file.read_text()] * 2
    assert stat.filemode(file.parent.stat().st_mode) == "drwx------"


def test_a_session_has_its_own_keys() -> None:
    keys = {
        session_key(secret, purpose, session)
        for secret in ("a", "b")
        for purpose in ("ranks", "objects")
        for session in ("1", "2")
    }
    assert len(keys) == 8
