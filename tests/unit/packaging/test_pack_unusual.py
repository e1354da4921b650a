"""Unusual files, files that change, and disks that fail."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from packaging_trees import content, leftovers, make_tree, names
from unprivileged import as_nobody

from cloudtrain.errors import InvalidSource, StorageError
from cloudtrain.packaging import pack


def test_names_of_every_kind(tmp_path: Path) -> None:
    odd = [
        "größe 測試.py",
        "line\nbreak",
        "-rf",
        "quo'te\"",
        "back\\slash",
        "x" * 200,
        "emoji 🚂",
        "é",
        "e\u0301",
    ]
    root = make_tree(tmp_path / "src", {**dict.fromkeys(odd, "x"), "/".join(["deep" * 10] * 10) + "/a": ""})
    with open(os.fsencode(root) + b"/not utf-8 \xff", "wb"):
        pass
    archive = pack(root, cache_dir=tmp_path / "cache")
    expected = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
    assert names(archive.path) == sorted(expected)
    "".join(name for name, _ in archive.largest).encode()  # printable


def test_empty_folders_and_read_only_files_are_kept(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "src", {"empty/": "", "a/b/": "", "locked/x.py": "x"})
    (root / "locked" / "x.py").chmod(0o400)
    (root / "locked").chmod(0o500)
    archive = pack(root, cache_dir=tmp_path / "cache")
    (root / "locked").chmod(0o700)
    listed = subprocess.run(["tar", "tzf", archive.path], check=True, capture_output=True, text=True).stdout
    assert listed.split() == ["a/", "a/b/", "empty/", "locked/", "locked/x.py"]


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(("kind", "make"), [("fifo", _fifo), ("socket", _socket)])
def test_special_files_are_refused_by_name(kind: str, make: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory() as short:  # the length of a socket's path is limited
        root = make_tree(Path(short, "src"), {"lib/": "", "train.py": ""})
        make(root / "lib" / "special")
        with pytest.raises(InvalidSource, match=f"lib/special is a {kind}"):
            pack(root, cache_dir=Path(short, "cache"))
        (root / ".cloudtrainignore").write_text("special\n")
        pack(root, cache_dir=Path(short, "cache"))


@pytest.mark.parametrize("name", ["lib/secret.bin", "lib/sub/", ".gitignore"])
def test_an_unreadable_file_is_named(name: str) -> None:
    with as_nobody() as folder:
        root = make_tree(folder / "src", {"train.py": "", name: ""})
        (root / name).chmod(0)
        with pytest.raises(InvalidSource, match=f"cannot read .*{name.rstrip('/')}: Permission denied"):
            pack(root, cache_dir=folder / "cache", allow_secrets=True)
        assert leftovers(folder / "cache") == []
        (root / name).chmod(0o700)


def test_a_cache_that_cannot_be_written() -> None:
    with as_nobody() as folder:
        root = make_tree(folder / "src", {"train.py": ""})
        cache = folder / "cache"
        cache.mkdir(mode=0o500)
        with pytest.raises(StorageError, match=f"{cache}: Permission denied"):
            pack(root, cache_dir=cache)


@contextmanager
def meanwhile(action: Callable[[int], None]) -> Iterator[None]:
    """Call ``action`` with 0, 1, 2, ... in the background."""
    ended = threading.Event()

    def loop() -> None:
        number = 0
        while not ended.is_set():
            action(number)
            number += 1

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_file_that_keeps_growing_is_named(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "src", {"train.py": "", "run.out": "", "noise.bin": os.urandom(20_000_000)})

    def grow(number: int) -> None:
        with (root / "run.out").open("a") as file:
            file.write(f"{number}\n")

    with meanwhile(grow), pytest.raises(InvalidSource, match=r"run\.out keeps changing"):
        pack(root, cache_dir=tmp_path / "cache")
    assert leftovers(tmp_path / "cache") == []


def test_a_file_that_vanishes_once_does_not_matter(tmp_path: Path) -> None:
    root = make_tree(
        tmp_path / "src", {"train.py": "", "zz/temporary": "x", "noise.bin": os.urandom(20_000_000)}
    )
    packed = threading.Event()

    def remove_while_packing() -> None:
        cache = tmp_path / "cache"
        while not packed.is_set() and not leftovers(cache):
            pass
        (root / "zz" / "temporary").unlink()

    thread = threading.Thread(target=remove_while_packing)
    thread.start()
    try:
        archive = pack(root, cache_dir=tmp_path / "cache")
    finally:
        packed.set()
        thread.join()
    assert names(archive.path) == ["noise.bin", "train.py"]
    assert content(archive.path, "noise.bin") == (root / "noise.bin").read_bytes()
    assert leftovers(tmp_path / "cache") == []
