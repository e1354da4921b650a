"""Marks of commits in progress, in a folder that the script can write to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloudtrain.observe.checkpointing import commits, committing


def test_a_commit_is_listed_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDTRAIN_RUN_DIR", str(tmp_path))
    assert commits(tmp_path) == {}
    with committing():
        assert [*commits(tmp_path).values()] == [os.getpid()]
    assert commits(tmp_path) == {}
    assert commits(tmp_path / "missing") == {}


def test_other_files_of_the_script_are_not_commits(tmp_path: Path) -> None:
    for name in ("committing-", "committing-x", "committing--1-a", "committing-²-a", "committed-7-a"):
        (tmp_path / name).touch()
    (tmp_path / "committing-7-a").touch()
    assert commits(tmp_path) == {"committing-7-a": 7}
