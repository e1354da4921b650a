"""Upload and download of trees; with S3 in tests/integration/storage/test_s3_trees.py."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudtrain.errors import NotFound, StorageError
from cloudtrain.storage import FileStore, ObjectInfo, Progress, download_tree, list_tree, upload_tree
from cloudtrain.storage._streams import Body
from cloudtrain.storage.transfer import MAX_WORKERS, download_entries

FILES = {"a": b"1", "a-b": b"22", "a.d/x": b"", "deep/er/ü é%": b"333", "deep/z": b"4444"}


def fill(folder: Path) -> Path:
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Reordered(FileStore):
    """A store with keys that are invalid file names, as S3 allows."""

    def __init__(self, folder: Path, keys: list[str]) -> None:
        super().__init__(folder)
        self.keys = keys

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return (ObjectInfo(key, 0) for key in self.keys)


@pytest.mark.parametrize("prefix", ["", "run/1", "/run/1/"])
def test_round_trip(prefix: str, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    moved: list[int] = []
    up = upload_tree(fill(tmp_path / "source"), store, prefix, moved.append)
    down = download_tree(store, tmp_path / "target", prefix, moved.append)
    assert contents(tmp_path / "target") == FILES
    assert [entry.key for entry in up] == sorted(FILES)
    assert up == down == list_tree(store, prefix)
    assert sum(moved) == 2 * sum(map(len, FILES.values()))


def test_the_body_of_an_upload_is_a_raw_stream() -> None:
    body = Body([memoryview(b"abc"), memoryview(b"de")])
    assert io.BufferedReader(body, 10).read() == b"abcde"


def test_a_prefix_is_a_folder_not_the_start_of_a_name(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.write("train/x", b"")
    store.write("train2/x", b"")
    assert list_tree(store, "train") == [ObjectInfo("x", 0)]


def test_select(tmp_path: Path) -> None:
    store = FileStore(fill(tmp_path / "store"))
    download_tree(store, tmp_path / "target", select=lambda entry: entry.key.startswith("deep/"))
    assert set(contents(tmp_path / "target")) == {"deep/er/ü é%", "deep/z"}


def test_known_objects_are_not_listed_again(tmp_path: Path) -> None:
    class Unlisted(FileStore):
        def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
            raise AssertionError("listed")

    fill(tmp_path / "store")
    download_entries(Unlisted(tmp_path / "store"), [ObjectInfo("z", 0)], tmp_path / "target", "deep")
    assert contents(tmp_path / "target") == {"z": FILES["deep/z"]}


def test_existing_files_are_replaced_and_others_kept(tmp_path: Path) -> None:
    store = FileStore(fill(tmp_path / "store"))
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "a").write_bytes(b"old and longer")
    (tmp_path / "target" / "mine").write_bytes(b"mine")
    download_tree(store, tmp_path / "target")
    assert contents(tmp_path / "target") == {**FILES, "mine": b"mine"}


@pytest.mark.parametrize("key", ["../escape", "/etc/escape", "a/../../escape", "a//b", "a/./b", "..", "../"])
def test_no_key_leaves_the_folder(key: str, tmp_path: Path) -> None:
    store = Reordered(fill(tmp_path / "store"), ["a", key])
    with pytest.raises(StorageError, match="not a valid key"):
        download_tree(store, tmp_path / "in" / "target")
    assert not (tmp_path / "in").exists()


def test_folder_markers_become_folders(tmp_path: Path) -> None:
    store = Reordered(fill(tmp_path / "store"), ["a", "empty/folder/"])
    download_tree(store, tmp_path / "target")
    assert (tmp_path / "target" / "empty" / "folder").is_dir()
    assert contents(tmp_path / "target") == {"a": b"1"}


def test_a_key_that_is_both_a_file_and_a_folder(tmp_path: Path) -> None:
    store = Reordered(fill(tmp_path / "store"), ["a", "a/"])
    with pytest.raises(StorageError):
        download_tree(store, tmp_path / "target")


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="missing"):
        upload_tree(tmp_path / "missing", FileStore(tmp_path / "store"))
    assert not (tmp_path / "store").exists()


def test_an_empty_tree(tmp_path: Path) -> None:
    assert download_tree(FileStore(tmp_path / "nothing"), tmp_path / "target") == []
    assert (tmp_path / "target").is_dir()


def test_the_first_error_stops_the_rest_and_is_raised(tmp_path: Path) -> None:
    """When one file fails, those in transfer stop at their next piece, and the rest never start."""
    under_way = [f"{number:03}" for number in range(MAX_WORKERS)]
    all_under_way = threading.Barrier(MAX_WORKERS, timeout=60)
    failed = threading.Event()
    started: list[str] = []

    class Failing(FileStore):
        def upload(
            self, path: Path, key: str, progress: Progress | None = None, *, if_absent: bool = False
        ) -> bool:
            assert progress is not None
            started.append(key)
            if key in under_way:
                all_under_way.wait()
            if key == "000":
                failed.set()
                raise StorageError("the disk of 000 is full")
            failed.wait(60)
            while True:
                progress(1)

    for number in range(100):
        (tmp_path / f"{number:03}").touch()
    with pytest.raises(StorageError, match="the disk of 000 is full"):
        upload_tree(tmp_path, Failing(tmp_path / "store"))
    assert sorted(started) == under_way
