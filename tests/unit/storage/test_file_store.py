"""Behavior specific to `FileStore`; that of all stores is in tests/integration/storage/test_store.py."""

from __future__ import annotations

import errno
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cloudtrain.errors import AccessDenied, NotFound, StorageError
from cloudtrain.storage import FileStore
from cloudtrain.storage.errors import file_errors


def test_a_reader_never_sees_a_partial_write(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    versions = [bytes([number]) * 300_000 for number in range(2)]
    store.write("key", versions[0])
    seen: set[bytes] = set()
    finished = threading.Event()

    def read() -> None:
        while not finished.is_set():
            seen.add(store.read("key"))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(60):
        store.write("key", versions[number % 2])
    finished.set()
    reader.join()
    assert seen <= set(versions)


def test_a_killed_writer_leaves_nothing_that_is_listed(tmp_path: Path) -> None:
    script = """
import os, signal, sys
from pathlib import Path
from cloudtrain.storage import FileStore

def die(count):
    os.kill(os.getpid(), signal.SIGKILL)

FileStore(Path(sys.argv[1])).upload(Path(sys.argv[2]), "deep/key", die)
"""
    source = tmp_path / "source"
    source.write_bytes(bytes(3 << 20))
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path / "store"), str(source)])
    store = FileStore(tmp_path / "store")
    assert ended.returncode == -9
    assert list((tmp_path / "store" / "deep").iterdir()) != []
    assert list(store.list()) == []
    assert store.stat("deep/key") is None


@pytest.mark.parametrize(
    "call",
    [
        lambda store, key: store.read(key),
        lambda store, key: store.write(key, b""),
        lambda store, key: store.create(key, b""),
        lambda store, key: store.stat(key),
        lambda store, key: store.delete([key]),
        lambda store, key: store.download(key, Path("/dev/null/x")),
        lambda store, key: store.upload(Path(__file__), key),
    ],
)
@pytest.mark.parametrize("key", ["../escape", "/etc/passwd", "a/../../escape", "", ".", "a/", "a\0b"])
def test_no_key_leaves_the_folder(call: Callable[[FileStore, str], object], key: str, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "inner")
    with pytest.raises(StorageError, match="not a valid key"):
        call(store, key)
    assert list(tmp_path.iterdir()) == []


def test_links_are_followed_but_not_in_cycles(tmp_path: Path) -> None:
    (tmp_path / "store" / "a").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_bytes(b"123")
    (tmp_path / "store" / "file").symlink_to(tmp_path / "elsewhere" / "file")
    (tmp_path / "store" / "folder").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "store" / "a" / "up").symlink_to(tmp_path / "store")
    (tmp_path / "store" / "nowhere").symlink_to(tmp_path / "missing")
    os.mkfifo(tmp_path / "store" / "pipe")
    assert [(entry.key, entry.size) for entry in FileStore(tmp_path / "store").list()] == [
        ("file", 3),
        ("folder/file", 3),
    ]


def test_folders_can_be_nested_deeper_than_python_calls(tmp_path: Path) -> None:
    key = "d/" * 200 + "file"
    (tmp_path / key).parent.mkdir(parents=True)
    (tmp_path / key).touch()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        found = list(FileStore(tmp_path).list())
    finally:
        sys.setrecursionlimit(limit)
    assert [entry.key for entry in found] == [key]


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.write("a", b"")
    assert store.stat("a/b") is None
    store.delete(["a/b"])
    for call in (lambda: store.write("a/b", b""), lambda: store.read("a/b")):
        with pytest.raises(StorageError):
            call()


def test_upload_of_a_missing_file_creates_nothing(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    with pytest.raises(NotFound, match="missing"):
        store.upload(tmp_path / "missing", "a/b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "kind", "hint"),
    [
        (errno.ENOENT, NotFound, ""),
        (errno.EACCES, AccessDenied, "permissions"),
        (errno.EROFS, AccessDenied, "permissions"),
        (errno.ENOSPC, StorageError, "Free some space"),
        (errno.EDQUOT, StorageError, "Free some space"),
        (errno.ENAMETOOLONG, StorageError, ""),
    ],
)
def test_errors_of_the_file_system(number: int, kind: type[StorageError], hint: str) -> None:
    with pytest.raises(kind) as raised, file_errors("file:///data/x"):
        raise OSError(number, os.strerror(number), "/data/x")
    assert type(raised.value) is kind
    assert "file:///data/x" in raised.value.message
    assert hint in raised.value.hint
