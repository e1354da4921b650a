"""A download writes below its target only, whatever the keys are and whatever is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloudtrain.errors import StorageError
from cloudtrain.storage import FileStore
from cloudtrain.storage.base import ObjectInfo
from cloudtrain.storage.transfer import download_entries, download_tree, same_names


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    for name in ("a", "sub/b", "sub/deep/c"):
        path = tmp_path / "store" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return FileStore(tmp_path / "store")


@pytest.mark.parametrize("key", ["../evil", "/etc/evil", "a/../../evil", "./a", "a//b", "", "..", "nul\0"])
def test_keys_that_lead_outside_are_refused_before_anything_is_written(
    store: FileStore, tmp_path: Path, key: str
) -> None:
    with pytest.raises(StorageError):
        download_entries(store, [ObjectInfo("a", 1), ObjectInfo(key, 1)], tmp_path / "target")
    assert not (tmp_path / "target").exists()
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("link", ["sub", "sub/deep"])
def test_nothing_is_written_through_a_link(store: FileStore, tmp_path: Path, link: str) -> None:
    target, outside = tmp_path / "target", tmp_path / "outside"
    outside.mkdir()
    (target / link).parent.mkdir(parents=True)
    (target / link).symlink_to(outside)
    with pytest.raises(
        StorageError, match="is a link: the files would be written to another folder"
    ) as caught:
        download_tree(store, target)
    assert caught.value.hint
    assert list(outside.iterdir()) == []
    assert not (target / "a").exists()


@pytest.mark.parametrize("name", ["", "sub", "sub/b"])
def test_something_else_of_the_same_name_gets_a_hint(store: FileStore, tmp_path: Path, name: str) -> None:
    """A named pipe in place of a folder, or a folder in place of a file."""
    path = tmp_path / "target" / name
    if name == "sub/b":
        path.mkdir(parents=True)
    else:
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(path)
    with pytest.raises(
        StorageError, match=f"{path}.*: (File exists|Is a directory|Not a directory)"
    ) as caught:
        download_tree(store, tmp_path / "target")
    assert caught.value.hint == "Something else has this name: remove it, or choose another folder."


def test_a_link_in_the_place_of_a_file_is_replaced(store: FileStore, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "a").symlink_to(tmp_path / "mine")
    download_tree(store, tmp_path / "target")
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "target" / "a").read_text() == "a"


def test_the_target_itself_may_be_a_link(store: FileStore, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "target").symlink_to(tmp_path / "disk")
    download_tree(store, tmp_path / "target")
    assert (tmp_path / "disk" / "sub" / "b").read_text() == "sub/b"


def test_names_that_differ_in_case_are_different_files_here(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    for name in ("model", "Model"):
        (tmp_path / "store" / name).write_text(name)
    download_tree(FileStore(tmp_path / "store"), tmp_path / "target")
    assert sorted(path.name for path in (tmp_path / "target").iterdir()) == ["Model", "model"]


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        (["a", "b"], None),
        (["a", "A"], ("a", "A")),
        (["é", "e\u0301"], ("é", "e\u0301")),
        (["straße", "STRASSE"], ("straße", "STRASSE")),
        (["x/a", "y/A"], None),
    ],
)
def test_keys_that_are_the_same_where_case_is_ignored(keys: list[str], found: tuple[str, str] | None) -> None:
    assert same_names(keys) == found
