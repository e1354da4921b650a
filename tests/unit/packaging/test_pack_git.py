"""The commit and the uncommitted changes are recorded next to the archive."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest
from packaging_trees import make_tree, names

from cloudtrain.packaging import pack

TOKEN = "gh" + "p_" + "a1B2" * 9


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = make_tree(tmp_path / "repo", {"src/train.py": "one\n", "src/größe.py": "x\n", "README": "r\n"})
    git(root, "init", "-q", "-b", "trunk")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    return root


def test_a_clean_checkout(repository: Path, tmp_path: Path) -> None:
    (repository / "README").write_text("changed, but no part of the source\n")
    archive = pack(repository / "src", cache_dir=tmp_path / "cache")
    assert archive.git is not None
    commit = git(repository, "rev-parse", "HEAD")
    assert (archive.git.commit, archive.git.branch, archive.git.dirty) == (commit, "trunk", False)
    recorded = json.loads((archive.path.parent / "git.json").read_text())
    assert recorded == {"commit": commit, "branch": "trunk", "dirty": False}
    assert (archive.path.parent / "dirty.diff").read_text() == ""
    assert names(archive.path) == ["größe.py", "train.py"]


def test_the_diff_can_be_applied(repository: Path, tmp_path: Path) -> None:
    git(repository, "config", "diff.noprefix", "true")  # the user's settings must not matter
    git(repository, "config", "color.ui", "always")
    (repository / "src" / "train.py").write_text("two\n")
    (repository / "src" / "größe.py").write_bytes(b"not utf-8 \xff\n")
    (repository / "src" / "new.py").write_text("new\n")
    archive = pack(repository / "src", cache_dir=tmp_path / "cache")
    assert archive.git is not None and archive.git.dirty
    git(repository, "checkout", "-q", "--", ".")
    git(repository, "apply", str(archive.path.parent / "dirty.diff"))
    assert (repository / "src" / "train.py").read_text() == "two\n"
    assert (repository / "src" / "größe.py").read_bytes() == b"not utf-8 \xff\n"


def test_new_files_alone_make_it_dirty(repository: Path, tmp_path: Path) -> None:
    (repository / "src" / "new.py").write_text("new\n")
    state = pack(repository / "src", cache_dir=tmp_path / "cache").git
    assert state is not None and state.dirty and state.diff == ""


def test_the_diff_carries_no_secrets(repository: Path, tmp_path: Path) -> None:
    make_tree(
        repository / "src",
        {".env": "PASSWORD=old-value\n", "hub.py": f"token = '{TOKEN}'\n", "a b.key": "1\n"},
    )
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "a mistake")
    for name in (".env", "hub.py"):
        (repository / "src" / name).unlink()
    (repository / "src" / "a b.key").write_text("2\n")
    (repository / "src" / "train.py").write_text("two\n")
    state = pack(repository / "src", cache_dir=tmp_path / "cache", allow_secrets=True).git
    assert state is not None
    assert "+two" in state.diff
    assert not any(secret in state.diff for secret in ("old-value", TOKEN, "a b.key"))


def test_inside_of_a_hook_of_another_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    assert pack(repository / "src", cache_dir=tmp_path / "cache").git is not None


def test_a_detached_head_and_no_commit_yet(repository: Path, tmp_path: Path) -> None:
    git(repository, "checkout", "-q", "--detach")
    state = pack(repository / "src", cache_dir=tmp_path / "cache").git
    assert state is not None and state.branch is None and state.commit
    young = make_tree(tmp_path / "young", {"train.py": ""})
    git(young, "init", "-q", "-b", "trunk")
    state = pack(young, cache_dir=tmp_path / "cache").git
    assert state is not None and (state.commit, state.branch, state.dirty) == (None, "trunk", True)


def test_the_same_content_outside_of_git_leaves_no_record(repository: Path, tmp_path: Path) -> None:
    inside = pack(repository / "src", cache_dir=tmp_path / "cache")
    copy = make_tree(tmp_path / "copy", {"train.py": "one\n", "größe.py": "x\n"})
    outside = pack(copy, cache_dir=tmp_path / "cache")
    assert outside.path == inside.path
    assert outside.git is None
    assert os.listdir(outside.path.parent) == ["sourcedir.tar.gz"]


@pytest.mark.parametrize("script", [None, "exit 1"])
def test_without_a_working_git_nothing_is_recorded(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None
) -> None:
    path = tmp_path / "bin"
    path.mkdir()
    if script:
        (path / "git").write_text(f"#!/bin/sh\n{script}\n")
        (path / "git").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(path))
    assert pack(repository / "src", cache_dir=tmp_path / "cache").git is None


def test_a_git_that_hangs_is_not_waited_for(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bin"
    path.mkdir()
    (path / "git").write_text("#!/bin/sh\nexec sleep 60\n")
    (path / "git").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{path}:{os.environ['PATH']}")
    monkeypatch.setattr("cloudtrain.packaging._git.LIMIT", 0.2)
    assert pack(repository / "src", cache_dir=tmp_path / "cache").git is None
