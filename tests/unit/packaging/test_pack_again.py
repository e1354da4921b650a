"""Packing again: unchanged files are not read, and every change is detected."""

from __future__ import annotations

import mmap
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from packaging_trees import content, make_tree

from cloudtrain._system.files import signature
from cloudtrain.packaging import SourceArchive, _index, pack

FILES = {
    "src/train.py": "print(1)",
    "src/lib/a.py": "a = 1",
    "src/.gitignore": "*.log\n",
    "src/a.log": "x",
    "dep/d.py": "d",
}


def packed(folder: Path) -> SourceArchive:
    return pack(folder / "src", [folder / "dep"], cache_dir=folder / "cache")


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Wait until no change is so recent that another one could be missed."""
    monkeypatch.setattr(
        _index, "SLOWEST_TICK", 50_000_000
    )  # long enough here; two seconds would slow down the tests
    return lambda: time.sleep(0.1)


@contextmanager
def opened_below(folder: Path) -> Iterator[list[str]]:
    """The names of the files below ``folder`` that are opened inside the context."""
    names: list[str] = []
    listening = True

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if listening and event == "open" and str(arguments[0]).startswith(f"{folder}/"):
            names.append(Path(str(arguments[0])).name)

    sys.addaudithook(hook)  # cannot be removed, but records nothing more
    yield names
    listening = False


def test_an_unchanged_tree_is_not_read(tmp_path: Path, settled: Callable[[], None]) -> None:
    make_tree(tmp_path, FILES)
    settled()
    with opened_below(tmp_path / "src") as opened:
        first = packed(tmp_path)
    assert {"train.py", "a.py"} < set(opened)
    with opened_below(tmp_path / "src") as opened:
        assert packed(tmp_path) == first
    assert set(opened) == {".gitignore", ".cloudtrainignore"}


def test_times_alone_do_not_change_the_archive(tmp_path: Path) -> None:
    make_tree(tmp_path, FILES)
    first = packed(tmp_path)
    os.utime(tmp_path / "src" / "train.py")
    assert packed(tmp_path) == first


def _edit(folder: Path) -> None:
    (folder / "src" / "train.py").write_text("print(2)")


def _edit_and_set_the_time_back(folder: Path) -> None:
    path = folder / "src" / "train.py"
    status = path.stat()
    path.write_text("print(2)")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _edit_dependency(folder: Path) -> None:
    (folder / "dep" / "d.py").write_text("e")


def _edit_ignore_file(folder: Path) -> None:
    (folder / "src" / ".cloudtrainignore").write_text("lib/\n")


def _make_executable(folder: Path) -> None:
    (folder / "src" / "train.py").chmod(0o755)


def _add_empty_folder(folder: Path) -> None:
    (folder / "src" / "new").mkdir()


def _rename(folder: Path) -> None:
    (folder / "src" / "lib" / "a.py").rename(folder / "src" / "lib" / "b.py")


def _swap(folder: Path) -> None:
    one, other = folder / "src" / "train.py", folder / "src" / "swap.py"
    one.rename(folder / "x")
    other.rename(one)
    (folder / "x").rename(other)


def _retarget(folder: Path) -> None:
    (folder / "src" / "link").unlink()
    (folder / "src" / "link").symlink_to("swap.py")


@pytest.mark.parametrize(
    "change",
    [
        *(_edit, _edit_and_set_the_time_back, _edit_dependency, _edit_ignore_file, _make_executable),
        *(_add_empty_folder, _rename, _swap, _retarget),
    ],
)
@pytest.mark.parametrize("wait", [True, False])
def test_every_change_is_detected(
    tmp_path: Path, settled: Callable[[], None], change: Callable[[Path], None], wait: bool
) -> None:
    make_tree(tmp_path, {**FILES, "src/swap.py": "print(9)"})
    (tmp_path / "src" / "link").symlink_to("train.py")
    if wait:
        settled()
    first = packed(tmp_path)
    change(tmp_path)
    second = packed(tmp_path)
    assert first.sha256 != second.sha256
    assert first.path.is_file() and second.path.is_file()


def test_edits_of_the_same_size_in_quick_succession(tmp_path: Path) -> None:
    make_tree(tmp_path, FILES)
    for number in range(50):
        (tmp_path / "src" / "train.py").write_text(f"print({number % 10})")
        assert content(packed(tmp_path).path, "train.py") == f"print({number % 10})".encode()


def test_an_edit_that_leaves_no_trace_in_the_stat_data(tmp_path: Path) -> None:
    """As on a file system with a coarse clock: a page is written twice within one tick."""
    make_tree(tmp_path, FILES)
    path = tmp_path / "src" / "train.py"
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content_of_file:
        content_of_file[6:7] = b"2"
        first = packed(tmp_path)
        before = signature(path.stat())
        content_of_file[6:7] = b"3"
        assert signature(path.stat()) == before
        second = packed(tmp_path)
    assert content(first.path, "train.py") == b"print(2)"
    assert content(second.path, "train.py") == b"print(3)"


def test_a_lost_or_damaged_cache_is_filled_again(tmp_path: Path) -> None:
    make_tree(tmp_path, FILES)
    first = packed(tmp_path)
    shutil.rmtree(first.path.parent)
    assert packed(tmp_path) == first
    for damage in (b"", b"{", b'{"archive": 1}', b"\xff"):
        for index in (tmp_path / "cache" / "index").iterdir():
            index.write_bytes(damage)
        assert packed(tmp_path) == first


@pytest.mark.parametrize("damage", [b"", b"short", None], ids=["empty", "short", "changed"])
def test_a_damaged_archive_is_made_again(
    damage: bytes | None, tmp_path: Path, settled: Callable[[], None]
) -> None:
    make_tree(tmp_path, FILES)
    settled()
    before = packed(tmp_path)
    whole = before.path.read_bytes()
    before.path.write_bytes(bytes(len(whole)) if damage is None else damage)
    assert packed(tmp_path).sha256 == before.sha256
    assert before.path.read_bytes() == whole
