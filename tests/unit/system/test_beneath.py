"""Files below a folder to which someone else writes: nothing but regular files in it is ever opened."""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloudtrain._system.safe_open import OUTWARD, Beneath, Refused
from cloudtrain._system.trees import remove_tree

SECRET = b"the host's secret"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A folder with one file of every kind, next to a secret."""
    (tmp_path / "secret").write_bytes(SECRET)
    top = tmp_path / "top"
    (top / "sub").mkdir(parents=True)
    (top / "sub" / "file").write_bytes(b"content")
    os.mkfifo(top / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(top / "socket"))
    links = {
        "inner": "sub/file",
        "through": "to-sub/file",
        "to-sub": "sub",
        "by-alias": "/opt/ml/sub/file",
        "sub/up-and-down": "../sub/file",
        "outward": str(tmp_path / "secret"),
        "by-dots": "sub/../../secret",
        "hidden": "/opt/ml/../../secret",
        "above": "..",
        "loop": "loop",
        "to-pipe": "pipe",
        "nothing": "missing",
    }
    for name, target in links.items():
        (top / name).symlink_to(target)
    return top


@pytest.fixture
def folder(top: Path) -> Iterator[Beneath]:
    with Beneath(top, ["/opt/ml"]) as folder:
        yield folder


def test_a_regular_file_is_opened(folder: Beneath) -> None:
    with folder.open("sub/file") as file:
        assert file.read() == b"content"
    assert folder.read("sub/file", 3) == b"con"
    with folder.inside("sub") as inner:
        assert inner.read("file", 100) == b"content"


@pytest.mark.parametrize("key", ["inner", "through", "by-alias", "sub/up-and-down", "to-sub/file"])
def test_a_link_to_a_file_in_the_folder_is_followed_only_on_request(folder: Beneath, key: str) -> None:
    with folder.open(key, follow=True) as file:
        assert file.read() == b"content"
    with pytest.raises(Refused):
        folder.open(key)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("outward", OUTWARD),
        ("by-dots", OUTWARD),
        ("hidden", OUTWARD),
        ("above/secret", OUTWARD),
        ("loop", "a link to itself"),
        ("pipe", "a named pipe"),
        ("to-pipe", "a link to a named pipe"),
        ("to-sub", "a link to a folder"),
        ("socket", "a socket"),
        ("sub", "a folder"),
        ("pipe/x", "not a file or folder"),
    ],
)
def test_everything_else_is_refused(folder: Beneath, key: str, why: str) -> None:
    with pytest.raises(Refused) as caught:
        folder.open(key, follow=True)
    assert caught.value.why == why


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can create devices")
def test_a_device_is_refused(top: Path, folder: Beneath) -> None:
    os.mknod(top / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    with pytest.raises(Refused, match="device"):
        folder.open("zero")


@pytest.mark.parametrize("key", ["../secret", "/etc/passwd", "sub//file", "", "sub/./file", "a\0b"])
def test_a_key_cannot_lead_outside(folder: Beneath, key: str) -> None:
    with pytest.raises((ValueError, Refused)):
        folder.open(key)


def test_a_walk_lists_files_and_links_and_names_the_rest(folder: Beneath) -> None:
    skipped: dict[str, str] = {}
    found = [entry.key for entry in folder.walk(skipped.__setitem__)]
    assert skipped == {"pipe": "a named pipe", "socket": "a socket"}
    assert found == [
        *("above", "by-alias", "by-dots", "hidden", "inner", "loop", "nothing", "outward"),
        *("sub", "sub/file", "sub/up-and-down", "through", "to-pipe", "to-sub"),
    ]


def test_a_walk_ends_in_a_tree_deeper_than_paths_and_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloudtrain._system.safe_open.DEEPEST", 300)  # 1000 take ten times as long
    (tmp_path / "job").mkdir()
    nest(tmp_path / "job", 3000)
    skipped: dict[str, str] = {}
    try:
        with Beneath(tmp_path / "job") as folder:
            assert len(list(folder.walk(skipped.__setitem__))) == 301
    finally:
        remove_tree(tmp_path / "job")  # pytest cannot
    assert list(skipped.values()) == ["more than 300 folders deep"]


def nest(folder: Path, depth: int) -> None:
    """Create ``depth`` folders inside one another; their path may be too long to be used."""
    inner = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=inner)
        outer, inner = inner, os.open("d", os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(inner)


def swap_for(seconds: float, swap: Callable[[], None], attack: Callable[[], bool]) -> int:
    """Call ``attack`` while another thread calls ``swap``. Returns how often it could read the file."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            swap()

    thread = threading.Thread(target=run)
    thread.start()
    end, reads = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        reads += attack()
    stop.set()
    thread.join()
    return reads


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("swapped", ["file", "folder"])
def test_a_file_that_is_swapped_for_a_link_shows_nothing_outside(
    tmp_path: Path, swapped: str, follow: bool
) -> None:
    """A file, or the folder above it, is a link to the outside most of the time."""
    outside, top = tmp_path / "outside", tmp_path / "top"
    for folder, content in ((outside, SECRET), (top / "sub", b"own")):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(content)
    own = top / ("sub/file" if swapped == "file" else "sub")
    (top / "link").symlink_to(outside / "file" if swapped == "file" else outside)

    def swap() -> None:
        os.rename(own, top / "aside")
        os.rename(top / "link", own)
        os.rename(own, top / "link")
        os.rename(top / "aside", own)

    with Beneath(top) as opened:

        def attack() -> bool:
            try:
                with opened.open("sub/file", follow=follow) as file:
                    assert file.read() == b"own"
            except OSError:
                return False
            return True

        reads = swap_for(0.5, swap, attack)
    assert reads > 10


def test_nothing_is_written_through_a_link(top: Path, folder: Beneath, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("config", "marks", "links"):
        (top / name).symlink_to(outside)
    (top / "mark").symlink_to(outside / "mark")
    folder.write("config/settings.json", b"{}")
    folder.write("outward", b"own")
    folder.touch("marks/point")
    folder.touch("mark")
    folder.make_folder("above/inner")
    folder.link("links/a", "/somewhere")
    folder.write("pipe", b"own")
    assert (tmp_path / "secret").read_bytes() == SECRET
    assert not list(outside.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "secret", "top"]
    assert (top / "config" / "settings.json").read_bytes() == b"{}"
    assert (top / "outward").read_bytes() == (top / "pipe").read_bytes() == b"own"
    assert os.readlink(top / "links" / "a") == "/somewhere"


def test_a_named_pipe_that_is_replaced_gets_neither_data_nor_permissions(
    top: Path, folder: Beneath, tmp_path: Path
) -> None:
    (tmp_path / "secret").chmod(0o600)
    (top / "train_0").symlink_to(tmp_path / "secret")
    (top / "train_1").write_bytes(b"")
    for name in ("train_0", "train_1"):
        with pytest.raises(OSError):
            folder.open_pipe(name)
        with pytest.raises(FileExistsError):
            folder.make_pipe(name, 0o666)
    assert (tmp_path / "secret").read_bytes() == SECRET
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    folder.make_pipe("train_2", 0o666)
    assert stat.S_IMODE((top / "train_2").stat().st_mode) == 0o666
