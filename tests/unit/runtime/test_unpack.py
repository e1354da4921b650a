"""Extraction: safe archives are extracted completely; others leave nothing behind."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import random
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudtrain.errors import CloudtrainError, InvalidSource, NotFound, StorageError
from cloudtrain.packaging import pack
from cloudtrain.runtime.inputs.unpack import unpack


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    info.uid = info.gid = 4321
    info.size = 4 if kind == tarfile.REGTYPE else 0
    return info


def link(name: str, target: str) -> tarfile.TarInfo:
    return member(name, tarfile.SYMTYPE, target)


def hard_link(name: str, target: str) -> tarfile.TarInfo:
    return member(name, tarfile.LNKTYPE, target)


def folder(name: str) -> tarfile.TarInfo:
    return member(name, tarfile.DIRTYPE)


def null_byte() -> tarfile.TarInfo:
    info = member("x")
    info.pax_headers = {"path": "x\0y"}
    return info


def archive_of(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for info in members:
            tar.addfile(info, io.BytesIO(b"data") if info.isreg() else None)
    return path


HAS_FILTER = hasattr(tarfile, "data_filter")


@pytest.fixture(params=["with tarfile.data_filter", "without"] if HAS_FILTER else ["without"])
def either_python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old patch releases have no extraction filters: `extraction_filter = None` then changes nothing."""
    if request.param == "without":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
        trusting = staticmethod(lambda info, path: info)
        monkeypatch.setattr(
            tarfile.TarFile, "extraction_filter", property(lambda _: trusting, lambda *_: None), raising=False
        )


def test_round_trip(tmp_path: Path, either_python: None) -> None:
    source = tmp_path / "src"
    (source / "lib" / "empty").mkdir(parents=True)
    (source / "train.py").write_text("print(1)")
    (source / "run.sh").write_text("#!/bin/sh")
    (source / "run.sh").chmod(0o755)
    (source / "lib" / "größe").write_bytes(os.urandom(100_000))
    (source / "lib" / "link").symlink_to("../train.py")
    (source / "folder").symlink_to("lib/empty")
    with open(os.fsencode(source) + b"/\xff", "w"):
        pass
    archive = pack(source, cache_dir=tmp_path / "cache")
    code = tmp_path / "deep" / "code"
    unpack(archive.path, code, archive.sha256)
    subprocess.run(["diff", "--recursive", "--no-dereference", source, code], check=True)
    assert stat.S_IMODE((code / "run.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE((code / "train.py").stat().st_mode) == 0o644
    assert stat.S_IMODE(code.stat().st_mode) == 0o755
    assert os.listdir(code.parent) == ["code"]


def test_an_archive_like_those_of_the_sagemaker_sdk(tmp_path: Path, either_python: None) -> None:
    """Its `create_tar_file` adds each top-level entry with its owner, time, mode and hard links."""
    source = tmp_path / "src"
    (source / "lib").mkdir(parents=True)
    (source / "train.py").write_text("x")
    (source / "train.py").chmod(0o600)
    os.link(source / "train.py", source / "lib" / "same.py")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", dereference=True) as tar:
        for path in sorted(source.iterdir()):
            tar.add(path, arcname=path.name)
    unpack(tmp_path / "a.tar.gz", tmp_path / "code")
    subprocess.run(["diff", "--recursive", source, tmp_path / "code"], check=True)


def test_an_archive_made_by_tar(tmp_path: Path, either_python: None) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "a.py").write_text("x")
    os.link(source / "a.py", source / "b.py")
    subprocess.run(["tar", "czf", tmp_path / "a.tar.gz", "-C", source, "."], check=True)
    unpack(tmp_path / "a.tar.gz", tmp_path / "code")
    subprocess.run(["diff", "--recursive", source, tmp_path / "code"], check=True)


UNSAFE = {
    "absolute": [member("/etc/x")],
    "above": [member("../x")],
    "above in the middle": [member("a/../../x")],
    "a name that is a parent": [folder("..")],
    "no name": [member(".")],
    "character device": [member("x", tarfile.CHRTYPE)],
    "block device": [member("x", tarfile.BLKTYPE)],
    "fifo": [member("x", tarfile.FIFOTYPE)],
    "absolute link": [link("x", "/etc/passwd")],
    "link above": [link("x", "../x")],
    "link above from below": [folder("a"), link("a/x", "../../x")],
    "link above in the middle": [link("x", "a/../../x")],
    "link to a link to above": [folder("a"), link("a/b", ".."), link("x", "a/b/../..")],
    "down a link and up again": [folder("d/e"), link("d/e/up", "../.."), link("x", "d/e/up/../y")],
    "file through a link": [folder("a"), link("x", "a"), member("x/y")],
    "file over a link": [link("x", "a"), member("x")],
    "link over a file": [member("x"), link("x", "a")],
    "link over a folder with files": [member("x/y"), link("x", "a")],
    "link over a link": [link("x", "a"), link("x", "b")],
    "absolute hard link": [hard_link("x", "/etc/passwd")],
    "hard link above": [hard_link("x", "../x")],
    "hard link to nothing": [hard_link("x", "y")],
    "hard link to a link": [link("y", "a"), hard_link("x", "y")],
    "hard link to itself": [hard_link("x", "x")],
    "hard link over its target": [member("x"), hard_link("x", "x")],
    "hard link over a folder": [member("y"), member("x/z"), hard_link("x", "y")],
    "null byte": [null_byte()],
}


@pytest.mark.parametrize("members", UNSAFE.values(), ids=UNSAFE.keys())
def test_unsafe_archives_leave_nothing(
    tmp_path: Path, members: list[tarfile.TarInfo], either_python: None
) -> None:
    place = tmp_path / "a" / "b"
    place.mkdir(parents=True)
    archive = archive_of(tmp_path / "a.tar.gz", member("good.py"), *members)
    with pytest.raises(InvalidSource, match="not safe to unpack"):
        unpack(archive, place / "code")
    assert sorted(os.listdir(tmp_path)) == ["a", "a.tar.gz"]
    assert os.listdir(place) == []


def test_links_that_stay_inside(tmp_path: Path, either_python: None) -> None:
    members = [
        *(folder("a/b"), member("a/b/x"), link("a/b/up", "../.."), link("a/b/same", "./x"), link("top", ".")),
        *(link("through", "a/b/up/a"), link("broken", "not/there"), hard_link("hard", "a/b/x")),
    ]
    unpack(archive_of(tmp_path / "a.tar.gz", *members), tmp_path / "code")
    assert (tmp_path / "code" / "through" / "b" / "same").read_text() == "data"
    assert (tmp_path / "code" / "hard").read_text() == "data"
    inside = (tmp_path / "code").resolve()
    for path in inside.rglob("*"):
        assert path.resolve().is_relative_to(inside)


def test_modes_and_owners_are_made_harmless(tmp_path: Path, either_python: None) -> None:
    members = [
        *(member("setuid", mode=0o6777), member("none", mode=0), member("group", mode=0o670)),
        *(member("folder", tarfile.DIRTYPE, mode=0o1000), member("folder/x", mode=0o444)),
    ]
    unpack(archive_of(tmp_path / "a.tar.gz", *members), tmp_path / "code")
    paths = {
        path.relative_to(tmp_path / "code").as_posix(): path.stat() for path in (tmp_path / "code").rglob("*")
    }
    modes = {name: oct(stat.S_IMODE(status.st_mode)) for name, status in paths.items()}
    assert modes == {
        "setuid": "0o755",
        "none": "0o644",
        "group": "0o644",
        "folder": "0o755",
        "folder/x": "0o644",
    }
    assert {(status.st_uid, status.st_gid) for status in paths.values()} == {(os.getuid(), os.getgid())}


def test_the_hash_is_checked_first(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "a.tar.gz", member("../x"))
    with pytest.raises(StorageError, match="does not have the SHA-256 0000"):
        unpack(archive, tmp_path / "code", "0" * 64)
    with pytest.raises(InvalidSource):
        unpack(archive, tmp_path / "code", hashlib.sha256(archive.read_bytes()).hexdigest())


def test_no_archive(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"a\.tar\.gz"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "code")


def test_damaged_archives_leave_nothing(tmp_path: Path) -> None:
    """Truncated or modified anywhere, it is refused or, if only a header's padding changed, extracted correctly."""
    (tmp_path / "src").mkdir()
    for number in range(3):
        (tmp_path / "src" / f"f{number}.bin").write_bytes(random.Random(number).randbytes(2_000))
    good = pack(tmp_path / "src", cache_dir=tmp_path / "cache").path.read_bytes()
    rng = random.Random(0)
    absurd = member("x", tarfile.XHDTYPE)
    absurd.size = 1 << 70
    damaged = [gzip.compress(absurd.tobuf(tarfile.GNU_FORMAT) + bytes(1024))]
    damaged += [b"", b"x", b"no archive at all" * 100, gzip.compress(b"no tar" * 1000)]
    damaged += [good[:size] for size in rng.sample(range(len(good)), 60)]
    for position in rng.sample(range(len(good)), 60):
        damaged.append(good[:position] + bytes([good[position] ^ 0x55]) + good[position + 1 :])
    place = tmp_path / "place"
    place.mkdir()
    refused = 0
    for number, data in enumerate(damaged):
        archive = tmp_path / "a.tar.gz"
        archive.write_bytes(data)
        try:
            unpack(archive, place / f"{number}")
        except CloudtrainError:
            refused += 1
            assert not (place / f"{number}").exists()
        else:
            subprocess.run(["diff", "--recursive", tmp_path / "src", place / f"{number}"], check=True)
    assert refused >= len(damaged) - 6
    assert len(os.listdir(place)) == len(damaged) - refused


def test_an_existing_folder_is_replaced_completely(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "a.tar.gz", member("train.py"))
    code = tmp_path / "code"
    code.mkdir()
    unpack(archive, code)
    (code / "deep").mkdir()
    (code / "deep" / "stale.py").touch()
    unpack(archive, code)
    assert sorted(os.listdir(tmp_path)) == ["a.tar.gz", "code"]
    assert os.listdir(code) == ["train.py"]


def test_an_existing_folder_is_kept_if_the_archive_is_bad(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "old.py").write_text("old")
    with pytest.raises(InvalidSource):
        unpack(archive_of(tmp_path / "a.tar.gz", member("../x")), code)
    assert sorted(os.listdir(tmp_path)) == ["a.tar.gz", "code"]
    assert (code / "old.py").read_text() == "old"


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Path]:
    """A root file system like a container's: an image with an overlay on top."""
    disk, root = tmp_path / "disk", tmp_path / "root"
    disk.mkdir()
    root.mkdir()
    script = f"""
        mount -t tmpfs tmpfs {disk}
        mkdir -p {disk}/image/code/deep {disk}/upper {disk}/work
        echo baked > {disk}/image/code/deep/baked.py
        mount -t overlay overlay {root} \\
            -o lowerdir={disk}/image,upperdir={disk}/upper,workdir={disk}/work,redirect_dir=off
    """
    if subprocess.run(["sh", "-ec", script], check=False, capture_output=True).returncode:
        subprocess.run(["umount", disk], check=False, capture_output=True)
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", "an overlay cannot be mounted here"
        pytest.skip("mounting a file system needs root")
    yield root
    subprocess.run(["umount", root, disk], check=True)


def test_a_folder_of_the_image_is_replaced(tmp_path: Path, image: Path) -> None:
    archive = archive_of(tmp_path / "a.tar.gz", member("train.py"))
    with pytest.raises(OSError, match="cross-device"):
        (image / "code").rename(image / "elsewhere")
    unpack(archive, image / "code")
    assert os.listdir(image) == ["code"]
    assert os.listdir(image / "code") == ["train.py"]
