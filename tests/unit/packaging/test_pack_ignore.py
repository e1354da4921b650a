"""Files that are left out of the archive."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from packaging_trees import make_tree, names

from cloudtrain.packaging import pack

TREE = dict.fromkeys(
    (
        *("train.py", "notes.txt", "a.log", "keep.log", "build/x.o", "build/keep.txt", "data/a.csv"),
        *("data/deep/b.csv", "data/deep/c.txt", "lib/a.py", "lib/a.log", "lib/build/y.o", "sub dir/ü.txt"),
    ),
    "",
)

GITIGNORES = {
    "suffix": {".gitignore": "*.log\n"},
    "negated": {".gitignore": "*.log\n!keep.log\n"},
    "folder anywhere": {".gitignore": "build/\n"},
    "folder at the top": {".gitignore": "/build\n"},
    "no way back into a folder that is out": {".gitignore": "build/\n!build/keep.txt\n"},
    "content of a folder but one": {".gitignore": "build/*\n!build/keep.txt\n"},
    "everything in a folder but one": {".gitignore": "build/**\n!build/keep.txt\n"},
    "only some at any depth": {".gitignore": "data/**\n!data/**/\n!data/**/*.csv\n"},
    "a list of what is in": {".gitignore": "*\n!*/\n!*.py\n!.gitignore\n"},
    "two stars": {".gitignore": "**/deep/*.txt\n"},
    "nested": {"lib/.gitignore": "*.log\n/build/\n"},
    "nested wins": {".gitignore": "*.log\n", "lib/.gitignore": "!a.log\n"},
    "comments, blanks, escapes": {".gitignore": "# train.py\n\n\\#x\nnotes.txt   \nsub\\ dir/\n"},
    "what makes no sense": {".gitignore": "!\n/\nfoo\\\n*.log\n"},
    "Windows line ends": {".gitignore": "*.log\r\nbuild/\r\n"},
    "byte order mark": {".gitignore": "\ufeff*.log\n"},
    "not UTF-8": {".gitignore": b"\xff\xfe.txt\n*.log\n"},
}


@pytest.mark.parametrize("ignores", GITIGNORES.values(), ids=GITIGNORES.keys())
def test_gitignore_has_the_meaning_of_git(tmp_path: Path, ignores: dict[str, str | bytes]) -> None:
    root = make_tree(tmp_path / "src", {**TREE, **ignores})
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    command = ["git", "-c", "core.excludesFile=", "ls-files", "-z", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    assert names(pack(root, cache_dir=tmp_path / "cache").path) == sorted(listed.rstrip("\0").split("\0"))


@pytest.mark.parametrize(
    ("ignores", "left_out"),
    [
        ({".cloudtrainignore": "data/\n"}, {"data/a.csv", "data/deep/b.csv", "data/deep/c.txt"}),
        ({".gitignore": "*.log\n", ".cloudtrainignore": "!*.log\n"}, set()),
        ({".gitignore": "build/\n", ".cloudtrainignore": "!/build/\n"}, {"lib/build/y.o"}),
        ({".cloudtrainignore": "*.log\n", "lib/.gitignore": "!a.log\n"}, {"a.log", "keep.log", "lib/a.log"}),
        ({".cloudtrainignore": "*.log\n", "lib/.cloudtrainignore": "!a.log\n"}, {"a.log", "keep.log"}),
    ],
)
def test_cloudtrainignore_takes_precedence(
    tmp_path: Path, ignores: dict[str, str], left_out: set[str]
) -> None:
    root = make_tree(tmp_path / "src", {**TREE, **ignores})
    packed = set(names(pack(root, cache_dir=tmp_path / "cache").path))
    assert set(TREE) - packed == left_out


def test_files_that_are_always_left_out(tmp_path: Path) -> None:
    never = (
        *(".git/config", "lib/.git", "lib/__pycache__/a.pyc", ".DS_Store", ".ipynb_checkpoints/a.ipynb"),
        *(".venv/pyvenv.cfg", ".venv/bin/python", "tools/my-env/pyvenv.cfg", "tools/my-env/lib/x.py"),
    )
    root = make_tree(tmp_path / "src", {"train.py": "", "lib/a.py": "", **dict.fromkeys(never, "")})
    assert names(pack(root, cache_dir=tmp_path / "cache").path) == ["lib/a.py", "train.py"]


def test_rules_of_the_repository_above(tmp_path: Path) -> None:
    repository = make_tree(
        tmp_path / "repo",
        {
            ".gitignore": "*.log\n/jobs/one/data/\n/generated/\n",
            **{
                f"{folder}/{name}": ""
                for folder in ("jobs/one", "generated/two")
                for name in ("train.py", "a.log")
            },
            "jobs/one/data/a.csv": "",
        },
    )
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    cache = tmp_path / "cache"
    assert names(pack(repository / "jobs" / "one", cache_dir=cache).path) == ["train.py"]
    # The user named the folder, although the repository ignores it.
    assert names(pack(repository / "generated" / "two", cache_dir=cache).path) == ["a.log", "train.py"]


def test_a_folder_that_is_left_out_is_not_entered(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "src", {".gitignore": "big/\n", "train.py": "", "big/link": ""})
    (root / "big" / "loop").symlink_to("loop")  # refused if it is visited
    assert names(pack(root, cache_dir=tmp_path / "cache").path) == [".gitignore", "train.py"]


def test_dependencies_have_their_own_rules(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {
            "src/.gitignore": "*.py\n!train.py\n",
            "src/train.py": "",
            "lib/a.py": "",
            "lib/b.log": "",
            "lib/.gitignore": "*.log",
        },
    )
    archive = pack(tmp_path / "src", [tmp_path / "lib"], cache_dir=tmp_path / "cache")
    assert names(archive.path) == [".gitignore", "lib/.gitignore", "lib/a.py", "train.py"]


def test_a_file_that_git_tracks_is_not_left_out(tmp_path: Path) -> None:
    root = make_tree(
        tmp_path / "repo",
        {
            ".gitignore": "*.txt\ndata/\n",
            "demo/.cloudtrainignore": "never.txt\n",
            **dict.fromkeys(("demo/train.py", "demo/agaricus.txt", "demo/never.txt", "demo/new.txt"), ""),
            **dict.fromkeys(("demo/data/ü.csv", "demo/data/deep/b.csv", "demo/data/scratch.csv"), ""),
        },
    )
    forced = [
        "demo/train.py",
        "demo/agaricus.txt",
        "demo/never.txt",
        "demo/data/ü.csv",
        "demo/data/deep/b.csv",
    ]
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "add", "-f", *forced], cwd=root, check=True)
    archive = pack(root / "demo", cache_dir=tmp_path / "cache")
    kept = [".cloudtrainignore", "agaricus.txt", "data/deep/b.csv", "data/ü.csv", "train.py"]
    assert names(archive.path) == kept
    assert archive.left_out == ("data/scratch.csv", "never.txt", "new.txt")
