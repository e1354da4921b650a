"""Windows gives the same bytes: it has no permission to execute a file, and another system's name in zip files."""

from __future__ import annotations

from pathlib import Path

from packaging_trees import make_tree
from systems.played import run_on

from cloudtrain.packaging import pack, pack_runtime

FILES = {
    "train.sh": "#!/bin/sh\n./tools/prepare\n",
    "tools/prepare": b"\x7fELF\x02\x01\x01\x00",
    "notes.txt": "two\r\nlines\r\n",
    "lib/größe.py": "a = 1\n",
}


def test_the_same_tree_gives_the_same_bytes(tmp_path: Path) -> None:
    linux = make_tree(tmp_path / "linux", FILES)
    for name in ("train.sh", "tools/prepare"):
        (linux / name).chmod(0o755)
    windows = make_tree(tmp_path / "windows", FILES)
    for path in windows.rglob("*.*"):
        path.chmod(0o666)
    program = Path(__file__).with_name("pack_elsewhere.py")
    entry, source, runtime = run_on(
        "win32", program, str(windows), str(tmp_path / "cache"), cwd=tmp_path
    ).split()
    assert entry == "train.sh"
    assert source == pack(linux, cache_dir=tmp_path / "cache of linux").sha256
    assert runtime == pack_runtime(tmp_path / "cache of linux").sha256


def test_a_shell_script_with_line_ends_of_windows_is_packed_with_a_warning(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "src", {"a.sh": "set -e\r\nrun\r\n", "b.sh": "set -e\n", "c.bat": "run\r\n"})
    archive = pack(root, cache_dir=tmp_path / "cache")
    assert archive.warnings == ("a.sh has the line ends of Windows (CRLF), which a Linux shell cannot run",)
