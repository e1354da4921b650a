"""The same tree gives the same bytes; the content and the modes of the archive."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from packaging_trees import content, make_tree, names

from cloudtrain.errors import InvalidSource
from cloudtrain.packaging import pack

FILES = {
    "train.py": "print(1)\n",
    "lib/a.py": "a = 1\n",
    "lib/b.py": "b = 2\n",
    "größe.txt": "ü",
    "empty/": "",
}


def test_bytes_do_not_depend_on_order_time_mode_or_path(tmp_path: Path) -> None:
    one = make_tree(tmp_path / "one", FILES)
    other = make_tree(tmp_path / "other" / "place", dict(reversed(FILES.items())))
    for path in other.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    (other / "train.py").chmod(0o400)
    (other / "lib").chmod(0o700)
    if os.geteuid() == 0:
        os.chown(other / "train.py", 1234, 1234)
    first, second = (pack(root, cache_dir=tmp_path / root.name) for root in (one, other))
    assert first.path.read_bytes() == second.path.read_bytes()
    assert first.sha256 == second.sha256 == hashlib.sha256(first.path.read_bytes()).hexdigest()
    assert first.path == tmp_path / "one" / first.sha256 / "sourcedir.tar.gz"


def test_bytes_do_not_depend_on_process_or_time_zone(tmp_path: Path) -> None:
    make_tree(tmp_path / "src", FILES)
    script = (
        "import sys; from pathlib import Path; from cloudtrain.packaging import pack\n"
        "print(pack(Path(sys.argv[1]), cache_dir=Path(sys.argv[2])).sha256)"
    )
    digests = set()
    for zone, seed in (("UTC", "1"), ("Pacific/Auckland", "2")):
        env = {**os.environ, "TZ": zone, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", script, str(tmp_path / "src"), str(tmp_path / zone)]
        digests.add(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout)
    assert len(digests) == 1


def test_bytes_do_not_depend_on_the_number_of_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_tree(tmp_path / "src", {"large.txt": b"0123456789abcdef" * 200_000, **FILES})
    digests = set()
    for cores in (1, 3, None):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        digests.add(pack(root, cache_dir=tmp_path / f"cache{cores}").sha256)
    assert len(digests) == 1


def test_content_modes_and_owners(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "src", {**FILES, "run.sh": "#!/bin/sh\n", "large.bin": os.urandom(3_000_001)})
    (root / "run.sh").chmod(0o750)
    (root / "lib" / "a.py").chmod(0o400)
    archive = pack(root, cache_dir=tmp_path / "cache")
    with tarfile.open(archive.path) as tar:
        members = {member.name: member for member in tar}
    assert {name: oct(member.mode) for name, member in members.items()} == {
        "empty": "0o755",
        "größe.txt": "0o644",
        "large.bin": "0o644",
        "lib": "0o755",
        "lib/a.py": "0o644",
        "lib/b.py": "0o644",
        "run.sh": "0o755",
        "train.py": "0o644",
    }
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members.values()} == {
        (0, 0, "", "", 315532800)
    }
    assert content(archive.path, "large.bin") == (root / "large.bin").read_bytes()
    assert archive.size == archive.path.stat().st_size
    assert archive.largest[0] == ("large.bin", 3_000_001)


def test_an_empty_source_and_a_single_file(tmp_path: Path) -> None:
    make_tree(tmp_path, {"src/": "", "train.py": "print(1)", "not this.py": ""})
    assert names(pack(tmp_path / "src", cache_dir=tmp_path / "cache").path) == []
    assert names(pack(tmp_path / "train.py", cache_dir=tmp_path / "cache").path) == ["train.py"]


def test_dependencies_are_at_the_top_with_their_base_name(tmp_path: Path) -> None:
    make_tree(tmp_path, {"src/train.py": "", "shared/lib/a.py": "", "shared/lib/sub/b.py": "", "util.py": ""})
    (tmp_path / "linked").symlink_to("shared/lib")
    archive = pack(
        tmp_path / "src",
        [tmp_path / "shared" / "lib", tmp_path / "util.py", tmp_path / "linked"],
        cache_dir=tmp_path / "cache",
    )
    expected = "lib/a.py lib/sub/b.py linked/a.py linked/sub/b.py train.py util.py"
    assert names(archive.path) == expected.split()


@pytest.mark.parametrize(
    ("source", "dependencies", "message"),
    [
        ("nosuch", [], "nosuch"),
        ("src", ["nosuch"], "nosuch"),
        ("src", ["lib"], "'lib' in the archive"),
        ("src", ["other/train.py"], "'train.py' in the archive"),
        ("train.py", ["other/train.py"], "'train.py' in the archive"),
    ],
)
def test_missing_parts_and_name_clashes(
    tmp_path: Path, source: str, dependencies: list[str], message: str
) -> None:
    make_tree(
        tmp_path,
        {"src/train.py": "", "src/lib/a.py": "", "lib/b.py": "", "other/train.py": "", "train.py": ""},
    )
    with pytest.raises(InvalidSource, match=message):
        pack(tmp_path / source, [tmp_path / name for name in dependencies], cache_dir=tmp_path / "cache")


def test_the_cache_is_never_packed(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "src", {"train.py": ""})
    first, second = (pack(root, cache_dir=root / "cache") for _ in range(2))
    assert names(second.path) == ["train.py"]
    assert first.sha256 == second.sha256


def test_two_thousand_files(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "src", {f"d{i % 50}/f{i}.txt": f"file {i}" for i in range(2_000)})
    archive = pack(root, cache_dir=tmp_path / "cache")
    assert names(archive.path) == sorted(path.relative_to(root).as_posix() for path in root.rglob("*.txt"))


def test_past_50_mb_the_largest_files_are_named(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "src", {"data/large.bin": "", "small.txt": "x"})
    with (root / "data" / "large.bin").open("wb") as file:
        file.truncate(50_000_000)
    (warning,) = pack(root, cache_dir=tmp_path / "cache").warnings
    assert "50.0 MB" in warning and "data/large.bin" in warning
    (root / "small.txt").unlink()
    assert pack(root, cache_dir=tmp_path / "cache").warnings == ()
