"""Files that arrive through a log, of which a cluster may lose lines."""

from __future__ import annotations

import hashlib
import json
import random
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from cloudtrain.errors import StorageError
from cloudtrain.platforms.kubernetes.volume_download import PROGRAM, _Files


def printed(path: Path, place: tuple[int, int] = (0, 0)) -> list[bytes]:
    """The lines of a pod."""
    arguments = json.dumps([str(path), *place])
    return subprocess.check_output([sys.executable, PROGRAM, arguments]).splitlines(keepends=True)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "deep").mkdir(parents=True)
    for name, size in (("a", 50_000), ("b", 0), ("deep/c", 12_000), ("deep/d", 12_001)):
        (folder / name).write_bytes(random.Random(name).randbytes(size))
    (folder / "link").symlink_to("/etc/passwd")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_no_lines_are_lost_unnoticed(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(PROGRAM))["main"]
    for seed in range(10):
        draw = random.Random(seed)
        target = tmp_path / f"target-{seed}"
        files, attempts = _Files(target, None), 0
        while not files.complete:
            main(str(source), *files.place)
            lines = capsys.readouterr().out.encode().splitlines(keepends=True)
            kept = [line[: draw.choice([len(line), len(line), 20])] for line in lines if draw.random() > 0.2]
            files.take(iter([b"a warning\n", *kept]))
            attempts += 1
            assert attempts < 100
        assert content(target) == content(source)
    assert sorted(tmp_path.glob(".*.part")) == []


def test_one_file(source: Path, tmp_path: Path) -> None:
    counts: list[int] = []
    files = _Files(tmp_path / "a", counts.append)
    files.take(iter(printed(source / "a")))
    assert files.complete and (tmp_path / "a").read_bytes() == (source / "a").read_bytes()
    assert sum(counts) == 50_000


def test_a_missing_path_has_no_files(tmp_path: Path) -> None:
    files = _Files(tmp_path / "a", None)
    files.take(iter(printed(tmp_path / "none")))
    assert (files.complete, files.count) == (True, 0)


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "link/x"])
def test_a_pod_writes_nothing_outside(tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "link").symlink_to(tmp_path)
    end = {"file": 0, "name": name, "size": 0, "sha256": hashlib.sha256().hexdigest()}
    with pytest.raises(StorageError):
        _Files(target, None).take(iter([json.dumps(end).encode()]))
    assert not (tmp_path / "x").exists()


def test_an_altered_file_is_an_error(source: Path, tmp_path: Path) -> None:
    lines = printed(source / "a")
    damaged = json.loads(lines[0])
    damaged["data"] = "AAAA" + damaged["data"][4:]
    lines[0] = json.dumps(damaged).encode()
    with pytest.raises(StorageError, match="a arrived altered"):
        _Files(tmp_path / "a", None).take(iter(lines))
    assert not (tmp_path / "a").exists()
