"""Entry points are checked before anything is submitted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from packaging_trees import make_tree

from cloudtrain.errors import InvalidSource
from cloudtrain.packaging import check_entry_point

TREE = {
    "src/train.py": "print('hello')\n",
    "src/scripts/run.sh": "not checked: (\n",
    "src/broken.py": "x = 1\n\nprint('hello'\n",
    "src/tabs.py": "if x:\n\ty\n        z\n",
    "src/null.py": b"x = 1\0\n",
    "src/latin.py": b"x = '\xe9'\n",
    "src/coded.py": "# -*- coding: latin-1 -*-\nx = 'é'\n".encode("latin-1"),
    "src/warns.py": "x = '\\d'\nx is 1\n",
    "src/a.log": "#!/bin/sh\n",
    "src/__pycache__/a.py": "",
    "src/out/a.py": "",
    "src/.gitignore": "*.log\nout/\n",
    "src/weights": b"\0\1\2",
    "src/notes.txt": "Hello.\n",
    "src/README.md": "# Hello\n",
    "src/Makefile": "all:\n\techo\n",
    "src/notes.rst": "Hello\n",
    "src/Notes.IPYNB": "{}",
    "src/job.yaml": "entry_point: train.py\n",
    "src/job.json": "{}",
    "src/model.R": "print(1)\n",
    "src/tool.pl": "#!/usr/bin/perl\n",
    "src/program.bin": b"\x7fELF\0",
    "src/src/train.py": "print('inner')\n",
    "other/train.py": "",
}


@pytest.mark.parametrize(
    ("entry_point", "expected"),
    [
        ("train.py", "train.py"),
        ("./train.py", "train.py"),
        ("scripts/../train.py", "train.py"),
        ("scripts/run.sh", "scripts/run.sh"),
        ("coded.py", "coded.py"),
        ("warns.py", "warns.py"),
        ("{root}/src/scripts/run.sh", "scripts/run.sh"),
        ("tool.pl", "tool.pl"),
        ("program.bin", "program.bin"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_accepted(tmp_path: Path, entry_point: str, expected: str) -> None:
    root = make_tree(tmp_path, TREE)
    assert check_entry_point(root / "src", entry_point.format(root=root)) == expected


@pytest.mark.parametrize(
    ("entry_point", "message"),
    [
        ("nosuch.py", r"entry_point 'nosuch\.py' does not exist"),
        ("trian.py", r"Did you mean 'train\.py'\?"),
        ("", "is a folder"),
        ("scripts", "is a folder"),
        ("../other/train.py", "outside source_dir"),
        ("{root}/other/train.py", "outside source_dir"),
        ("..", "outside source_dir"),
        ("broken.py", r"src/broken\.py:3: .*never closed: print\('hello'"),
        ("tabs.py", r"src/tabs\.py:3: .*indent"),
        ("null.py", r"src/null\.py: .*null bytes"),
        ("latin.py", r"src/latin\.py:1: .*(utf|UTF)-8"),
        ("a.log", "excluded from the archive"),
        ("out/a.py", "excluded from the archive"),
        ("__pycache__/a.py", "excluded from the archive"),
        ("fifo", "not a regular file"),
        ("notes.txt", r"'notes\.txt' cannot be run: it is a text\n  Name a Python file"),
        ("README.md", "cannot be run: it is a text"),
        ("Makefile", "cannot be run: it is neither a Python file nor a program"),
        ("notes.rst", "cannot be run: it is a text"),
        ("Notes.IPYNB", r"cannot be run: it is a notebook\n  Let cloudtrain convert it"),
        ("job.yaml", r"cannot be run: it is a YAML file\n  .* cloudtrain submit FILE"),
        ("job.json", "cannot be run: it is a JSON file"),
        ("model.R", r"it is neither a Python file nor a program\n  .* begins with #!"),
        ("weights", "it is neither a Python file nor a program"),
    ],
)
def test_refused(tmp_path: Path, entry_point: str, message: str) -> None:
    root = make_tree(tmp_path, TREE)
    os.mkfifo(root / "src" / "fifo")
    with pytest.raises(InvalidSource, match=message) as caught:
        check_entry_point(root / "src", entry_point.format(root=root))
    assert caught.value.hint or "regular" in message


def test_without_source_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_tree(tmp_path, TREE)
    monkeypatch.chdir(root / "src")
    assert check_entry_point(None, "scripts/run.sh") == "run.sh"
    assert check_entry_point(None, str(root / "other" / "train.py")) == "train.py"
    with pytest.raises(InvalidSource, match=r"entry_point .* does not exist"):
        check_entry_point(None, "nosuch.py")


def test_a_path_from_the_working_directory_into_source_dir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_tree(tmp_path, TREE)
    monkeypatch.chdir(root)
    assert check_entry_point(Path("src"), "src/scripts/run.sh") == "scripts/run.sh"
    assert check_entry_point(Path("src"), "src/train.py") == "src/train.py"  # src/src/train.py comes first
    with pytest.raises(InvalidSource, match=r"no file \S+/src/scripts/rum\.sh\n  Did you mean 'run\.sh'\?"):
        check_entry_point(Path("src"), "src/scripts/rum.sh")
    monkeypatch.chdir(root / "src" / "scripts")
    assert check_entry_point(root / "src", "run.sh") == "scripts/run.sh"
    monkeypatch.chdir(root / "other")
    make_tree(root / "other", {"only.py": ""})
    with pytest.raises(InvalidSource, match="outside source_dir"):
        check_entry_point(root / "src", "only.py")


@pytest.mark.parametrize("name", ["nosuch", "src/train.py"])
def test_no_source_dir(tmp_path: Path, name: str) -> None:
    root = make_tree(tmp_path, TREE)
    with pytest.raises(InvalidSource, match="is not a directory"):
        check_entry_point(root / name, "train.py")


def test_a_module_of_a_package(tmp_path: Path) -> None:
    root = make_tree(tmp_path, {"src/pyproject.toml": "", "src/trainer/__init__.py": ""})
    assert check_entry_point(root / "src", "trainer.task") == "trainer.task"
    with pytest.raises(InvalidSource, match=r"entry_point .* does not exist"):
        check_entry_point(root / "src", "not a module")
    (root / "src" / "pyproject.toml").unlink()
    with pytest.raises(InvalidSource, match=r"entry_point .* does not exist"):
        check_entry_point(root / "src", "trainer.task")
