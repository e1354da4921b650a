"""Folders that a job filled are removed, whatever it left there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_beneath import nest
from unprivileged import as_nobody

from cloudtrain._system.safe_open import Beneath
from cloudtrain._system.trees import remove_tree


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    with as_nobody() as folder:
        yield folder


def test_a_tree_deeper_than_paths_and_descriptors_is_removed(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    nest(tmp_path / "job", 3000)
    remove_tree(tmp_path / "job")
    assert not list(tmp_path.iterdir())


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (tmp_path / "job" / "model").mkdir(parents=True)
    (tmp_path / "job" / "model" / "link").symlink_to(outside)
    (tmp_path / "job" / "link").symlink_to(outside / "kept")
    os.mkfifo(tmp_path / "job" / "pipe")
    remove_tree(tmp_path / "job")
    assert [path.name for path in tmp_path.rglob("*")] == ["outside", "kept"]
    (tmp_path / "job").symlink_to(outside)
    remove_tree(tmp_path / "job")
    assert (outside / "kept").read_text() == "kept"


def closed_tree(folder: Path) -> Path:
    job = folder / "job"
    (job / "closed" / "inner").mkdir(parents=True)
    (job / "closed" / "inner" / "file").write_text("x")
    (job / "closed" / "link").symlink_to(folder / "kept")
    (folder / "kept").write_text("kept")
    (job / "closed" / "inner").chmod(0)
    (job / "closed").chmod(0o300)
    return job


def test_closed_folders_are_removed_by_their_owner(unprivileged: Path) -> None:
    job = closed_tree(unprivileged)
    remove_tree(job)
    assert [path.name for path in unprivileged.iterdir()] == ["kept"]


def test_a_link_in_a_closed_folder_is_not_written_through(unprivileged: Path) -> None:
    """Its owner may enter the folder, but not list it: a search for links misses it."""
    with Beneath(closed_tree(unprivileged)) as folder:
        skipped: dict[str, str] = {}
        assert [found.key for found in folder.walk(skipped.__setitem__)] == ["closed"]
        assert skipped == {"closed": "a folder that cannot be read"}
        folder.write("closed/link", b"settings")
        folder.write("closed/inner/settings", b"settings")
    assert (unprivileged / "kept").read_text() == "kept"
    assert (unprivileged / "job" / "closed" / "link").read_text() == "settings"


def test_an_error_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        remove_tree(tmp_path / "missing")
