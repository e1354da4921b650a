"""A disk that is really full: a small tmpfs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cloudtrain.errors import StorageError
from cloudtrain.storage import FileStore, Store, download_tree, open_store

pytestmark = pytest.mark.proof("folders", real="full and failing disks by a traced system call")

SIZE = 3 << 20


@pytest.fixture
def small_disk(make_disk: Callable[[str], Path]) -> Path:
    return make_disk("1m")


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Has ``small``, which fits the disk, and ``medium`` and ``large``, which do not."""
    if request.param == "file":
        store = open_store((tmp_path / "store").as_uri())
    else:
        store = open_store(f"s3://{request.getfixturevalue('s3')}")
    store.write("small", b"small")
    store.write("medium", bytes(SIZE))
    store.write("large", bytes(4 * SIZE))
    return store


@pytest.mark.parametrize("key", ["medium", "large"])
def test_download(key: str, store: Store, small_disk: Path) -> None:
    (small_disk / "target").write_bytes(b"old")
    with pytest.raises(StorageError, match=r"No space left on device") as raised:
        store.download(key, small_disk / "target")
    assert f"{store.uri}/{key}" in raised.value.message
    assert "Free some space" in raised.value.hint
    assert [path.name for path in small_disk.iterdir()] == ["target"]
    assert (small_disk / "target").read_bytes() == b"old"


def test_download_tree(store: Store, small_disk: Path) -> None:
    with pytest.raises(StorageError, match=r"No space left on device"):
        download_tree(store, small_disk / "tree")
    assert {path.name for path in (small_disk / "tree").iterdir()} <= {"small"}


def test_write_and_upload(small_disk: Path, tmp_path: Path) -> None:
    store = FileStore(small_disk)
    store.write("key", b"old")
    (tmp_path / "large").write_bytes(bytes(SIZE))
    for call in (
        lambda: store.write("key", bytes(SIZE)),
        lambda: store.create("new", bytes(SIZE)),
        lambda: store.upload(tmp_path / "large", "key"),
    ):
        with pytest.raises(StorageError, match=r"No space left on device"):
            call()
    assert [path.name for path in small_disk.iterdir()] == ["key"]
    assert store.read("key") == b"old"
