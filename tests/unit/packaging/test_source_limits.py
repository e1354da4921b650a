"""A source that is too large is refused, where it is packed and where it is unpacked, and leaves nothing behind."""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
import tracemalloc
from pathlib import Path

import fuzzing
import pytest
from packaging_trees import make_tree

from cloudtrain.contract import SourceLimits
from cloudtrain.errors import CloudtrainError, InvalidSource
from cloudtrain.packaging import check_entry_point, pack
from cloudtrain.runtime.inputs.requirements import content_of
from cloudtrain.runtime.inputs.unpack import unpack
from cloudtrain.spec import TrainingJob

SMALL = SourceLimits(size=10_000_000, files=100)


def test_a_huge_file_is_refused_without_reading_it(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "src", {"train.py": ""})
    with open(root / "data.bin", "wb") as file:
        file.truncate(11_000_000_000)  # no block of it is on the disk
    with pytest.raises(
        InvalidSource, match=r"more than 10 GB of files, among them data\.bin \(11000\.0 MB\)"
    ) as caught:
        pack(root, cache_dir=tmp_path / "cache")
    assert ".cloudtrainignore" in caught.value.hint and "max_source_size" in caught.value.hint
    assert list((tmp_path / "cache").iterdir()) == []


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "src", {f"{number}": "" for number in range(101)})
    with pytest.raises(InvalidSource, match="has more than 100 files") as caught:
        pack(root, cache_dir=tmp_path / "cache", limits=SMALL)
    assert "max_source_files" in caught.value.hint
    pack(root, cache_dir=tmp_path / "cache")


def test_the_folder_with_too_many_files_is_named(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "src", {"train.py": "", **{f"images/{number}": "" for number in range(101)}})
    with pytest.raises(InvalidSource, match=r"more than 100 files and folders, among them \d+ in images"):
        pack(root, cache_dir=tmp_path / "cache", limits=SMALL)


def test_a_job_can_raise_the_limits() -> None:
    job = TrainingJob.from_dict({"entry_point": "a.py", "max_source_size": 20.5, "max_source_files": 7})
    assert job.source_limits == SourceLimits(20_500_000_000, 7)
    assert TrainingJob().source_limits == SourceLimits()


def _zeros(path: Path, size: int, kind: bytes = tarfile.REGTYPE) -> Path:
    """An archive with one member of ``size`` zero bytes."""
    header = tarfile.TarInfo("zeros")
    header.size, header.type = size, kind
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header.tobuf(tarfile.GNU_FORMAT))
        for _ in range(size // 1_000_000):
            file.write(bytes(1_000_000))
    return path


@pytest.mark.parametrize(
    "kind",
    [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK],
    ids=["file", "header", "global header", "long name", "long link"],
)
def test_an_archive_that_unpacks_to_much_more_is_refused_early(tmp_path: Path, kind: bytes) -> None:
    archive = _zeros(tmp_path / "a.tar.gz", 300_000_000, kind)
    assert archive.stat().st_size < 3_000_000
    tracemalloc.start()
    try:
        with pytest.raises(CloudtrainError) as caught:
            unpack(archive, tmp_path / "code", limits=SMALL)
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()
    assert caught.value.hint
    assert os.listdir(tmp_path) == ["a.tar.gz"]


def test_many_members_are_refused_early(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        for number in range(300):
            tar.addfile(tarfile.TarInfo(f"{number}"))
    with pytest.raises(InvalidSource, match="contains more than 100 files") as caught:
        unpack(tmp_path / "a.tar.gz", tmp_path / "code", limits=SMALL)
    assert "max_source_files" in caught.value.hint
    unpack(tmp_path / "a.tar.gz", tmp_path / "code")


def test_data_behind_the_archive_does_not_keep_the_runtime_busy(tmp_path: Path) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("train.py"))
    with gzip.open(tmp_path / "a.tar.gz", "wb", compresslevel=1) as file:
        file.write(data.getvalue())
        for _ in range(100):
            file.write(bytes(1_000_000))
    os.truncate(tmp_path / "a.tar.gz", os.path.getsize(tmp_path / "a.tar.gz") // 2)  # its end is an error
    unpack(tmp_path / "a.tar.gz", tmp_path / "code", limits=SMALL)
    assert (tmp_path / "code" / "train.py").is_file()


NAMES = ("train.py", "lib", "lib/a.py", "../x", "/x", "a" * 300, "ü\udcff", "lib/../b", ".", "", "lib/a.py/c")
KINDS = (
    *(tarfile.REGTYPE,) * 4,
    tarfile.DIRTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.FIFOTYPE,
    tarfile.GNUTYPE_SPARSE,
)


def test_damaged_archives(tmp_path: Path) -> None:
    choose = fuzzing.random("archive")
    archive, outside = tmp_path / "a.tar.gz", tmp_path / "outside"
    outside.mkdir()
    place = outside / "place"
    place.mkdir()

    def damaged() -> object:
        while True:
            data = io.BytesIO()
            with tarfile.open(
                fileobj=data, mode="w", format=choose.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))
            ) as tar:
                for _ in range(choose.randrange(6)):
                    info = tarfile.TarInfo(choose.choice(NAMES))
                    info.type, info.linkname = choose.choice(KINDS), choose.choice(NAMES)
                    info.mode = choose.choice((0o644, 0o7777, 0))
                    info.size = choose.choice((0, 4, 4, 4)) if info.isreg() else 0
                    tar.addfile(info, io.BytesIO(b"data") if info.isreg() else None)
            kind = choose.random()
            text = data.getvalue()[: choose.choice((2048, 10240))]
            if kind < 0.4:
                yield gzip.compress(text, 1)
            elif kind < 0.8:
                yield gzip.compress(fuzzing.damaged_bytes(text, choose), 1)
            else:
                yield fuzzing.damaged_bytes(gzip.compress(text, 1), choose)

    def read(data: bytes) -> None:
        archive.write_bytes(data)
        try:
            unpack(archive, place / "code", limits=SMALL)
        finally:
            assert os.listdir(outside) == ["place"] and set(os.listdir(place)) <= {"code"}

    fuzzing.check("archive", damaged(), read)  # type: ignore[arg-type]


REQUIREMENTS = b"--index-url https://x/simple\n-r more.txt\nnumpy==2.1 ; python_version>'3'\n./lib[a]\nb @ file:///tmp/b\n"
SCRIPT = (
    b"# coding: utf-8\nimport helpers\nfrom . import b\n\ndef f(a, *b):\n    return f'{a!r}' + \"\xc3\xbc\"\n"
)
IGNORE = b"*.bin\n!data/**\n/a[b\n\\\ndata/\n"


def test_damaged_sources(tmp_path: Path) -> None:
    choose = fuzzing.random("source")
    root = make_tree(
        tmp_path / "src", {"helpers.py": "import os\n", "more.txt": "-r requirements.txt\n", "lib/a": ""}
    )

    def damaged() -> object:
        while True:
            yield tuple(fuzzing.damaged_bytes(text, choose) for text in (SCRIPT, REQUIREMENTS, IGNORE))

    def read(texts: tuple[bytes, ...]) -> None:
        for name, text in zip(("train.py", "requirements.txt", ".cloudtrainignore"), texts, strict=True):
            (root / name).write_bytes(text)
        list(content_of(root / "requirements.txt", root))
        try:
            check_entry_point(None, str(root / "train.py"))
            pack(root / "train.py", cache_dir=tmp_path / "cache")
        finally:
            pack(root, cache_dir=tmp_path / "cache")

    fuzzing.check("source", damaged(), read)  # type: ignore[arg-type]
    assert not [
        name for name in os.listdir(tmp_path / "cache") if not re.fullmatch("[0-9a-f]{64}|index", name)
    ]
