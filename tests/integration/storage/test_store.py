"""The behavior of every store: files, a real S3 server, and an emulator of Google Cloud Storage."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloudtrain.errors import NotFound
from cloudtrain.storage import ObjectInfo, Store, open_store
from cloudtrain.storage.client import PART

KEYS = [
    "Z/1",
    "a",
    "a-b",
    "a.txt",
    "a/b",
    "a0",
    "deep/er/still",
    "é/ü ñ",
    "per%20cent",
    "plus+&=#?",
    "日本/語",
]


@pytest.fixture(params=["file", "s3", "gs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "file":
        return open_store((tmp_path / "store").as_uri())
    bucket = request.getfixturevalue("s3" if request.param == "s3" else "gcs")
    return open_store(f"{request.param}://{bucket}/some/prefix")


def skip_what_is_file_and_folder(store: Store, keys: list[str]) -> list[str]:
    return keys if not store.uri.startswith("file://") else [key for key in keys if key != "a/b"]


@pytest.mark.parametrize("key", KEYS)
def test_read_what_was_written(store: Store, key: str) -> None:
    store.write(key, b"old, and longer")
    store.write(key, key.encode())
    assert store.read(key) == key.encode()
    assert store.stat(key) == ObjectInfo(key, len(key.encode()))
    assert list(store.list()) == [ObjectInfo(key, len(key.encode()))]


def test_list_is_sorted_by_key(store: Store) -> None:
    keys = skip_what_is_file_and_folder(store, KEYS)
    for key in reversed(keys):
        store.write(key, b"")
    assert [entry.key for entry in store.list()] == sorted(keys)
    assert [entry.key for entry in store.list("a")] == [key for key in sorted(keys) if key.startswith("a")]
    assert list(store.list("nothing")) == []


def test_missing_objects(store: Store, tmp_path: Path) -> None:
    assert list(store.list()) == []
    assert store.stat("missing") is None
    store.delete(["missing"])
    with pytest.raises(NotFound, match=f"{store.uri}/missing does not exist"):
        store.read("missing")
    with pytest.raises(NotFound, match=f"{store.uri}/missing does not exist"):
        store.download("missing", tmp_path / "folder" / "target")
    assert not list(tmp_path.glob("**/*target*"))


def test_delete(store: Store) -> None:
    for key in ("a", "b/c", "b/d"):
        store.write(key, b"1")
    store.delete(iter(["a", "b/c", "missing"]))
    assert [entry.key for entry in store.list()] == ["b/d"]


def test_create_does_not_replace(store: Store) -> None:
    assert store.create("lock", b"first")
    assert not store.create("lock", b"second")
    assert store.read("lock") == b"first"


def test_of_sixteen_creators_one_wins(store: Store) -> None:
    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(lambda number: store.create("lock", str(number).encode()), range(16)))
    assert won.count(True) == 1
    assert store.read("lock") == str(won.index(True)).encode()


@pytest.mark.parametrize("size", [0, 1, PART, PART + 1, 3 * PART + 5])
def test_files_up_and_down(store: Store, size: int, tmp_path: Path) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    (tmp_path / "up").write_bytes(data)
    moved: list[int] = []
    assert store.upload(tmp_path / "up", "key", moved.append)
    (tmp_path / "down").write_bytes(b"old")
    store.download("key", tmp_path / "down", moved.append)
    assert (tmp_path / "down").read_bytes() == data
    assert sum(moved) == 2 * size
    assert store.stat("key") == ObjectInfo("key", size)
    assert {path.name for path in tmp_path.iterdir()} <= {"up", "down", "store"}


@pytest.mark.parametrize("size", [0, 3, 2 * PART + 5])
def test_an_open_file_is_uploaded_even_if_another_one_has_its_name(
    store: Store, size: int, tmp_path: Path
) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    (tmp_path / "up").write_bytes(data)
    moved: list[int] = []
    with open(tmp_path / "up", "rb") as file:
        (tmp_path / "up").unlink()
        (tmp_path / "up").write_bytes(b"something else")
        assert store.upload(file, "key", moved.append)
        assert not file.closed
    assert store.read("key") == data
    assert sum(moved) == size


@pytest.mark.parametrize("size", [3, PART + 1])
def test_upload_if_absent(store: Store, size: int, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).write_bytes(name.encode() + bytes(size))
    assert store.upload(tmp_path / "first", "key", if_absent=True)
    assert not store.upload(tmp_path / "second", "key", if_absent=True)
    assert store.read("key") == b"first" + bytes(size)


def test_sixteen_simultaneous_uploads_of_one_content(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with ThreadPoolExecutor(16) as pool:
        copied = list(pool.map(lambda _: store.upload(tmp_path / "file", "key", if_absent=True), range(16)))
    assert any(copied)
    assert store.read("key") == b"content"


def test_a_store_does_not_lead_outside_its_folder(store: Store) -> None:
    store.write("in/x", b"1")
    store.write("in2/x", b"1")
    assert [entry.key for entry in open_store(store.uri + "/in").list()] == ["x"]
