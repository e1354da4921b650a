"""The files that are packed with a single script, because it needs them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from packaging_trees import content, make_tree, names

from cloudtrain.errors import InvalidSource
from cloudtrain.packaging import pack
from cloudtrain.packaging.companions import companions


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"train.py": "import os, torch"}, ""),
        ({"train.py": "import helpers", "helpers.py": "", "other.py": ""}, "helpers.py"),
        ({"train.py": "import a", "a.py": "from b import c", "b.py": "import a"}, "a.py b.py"),
        ({"train.py": "def f():\n  import late", "late.py": ""}, "late.py"),
        ({"train.py": "try:\n  import fast\nexcept ImportError:\n  fast = None", "fast.py": ""}, "fast.py"),
        ({"train.py": "from .helpers import x", "helpers.py": ""}, "helpers.py"),
        (
            {
                "train.py": "from models import build",
                "models/__init__.py": "import importlib",
                "models/gan.py": "import losses",
                "models/parts/__init__.py": "",
                "models/parts/conv.py": "",
                "models/weights/big.bin": "x",
                "models/scripts/tool.py": "",
                "losses.py": "",
            },
            "losses.py models/__init__.py models/gan.py models/parts/__init__.py models/parts/conv.py",
        ),
        ({"train.py": "from data.load import x", "data/load.py": "", "data/a.bin": "x", "data/b": ""}, "data/load.py"),
        ({"train.py": "import datasets, data", "datasets/images/a.png": "", "data/b.py": ""}, ""),
        ({"train.py": "import json", "json.py": ""}, "json.py"),
        ({"train.py": "import broken, helpers", "broken.py": "(", "helpers.py": ""}, "broken.py helpers.py"),
        ({"train.py": "import a", "a.py": "", ".gitignore": "a.py\n"}, ""),
        ({"train.py": "import a.b", "a/__init__.py": "", "a/b.py": "", "a/.cloudtrainignore": "b.py"}, "a/__init__.py"),
        ({"train.py": "", "requirements.txt": "numpy\n"}, "requirements.txt"),
        (
            {
                "train.py": "",
                "requirements.txt": "-r more/base.txt\n-r requirements.txt\n-c base.txt\n-r https://x.org/r.txt",
                "base.txt": "git+https://example.com/a.git\n-e git+https://example.com/b.git\nhttps://x.org/c.whl\n/opt/d",
                "more/base.txt": "-r deep.txt",
                "more/deep.txt": "",
            },
            "base.txt more/base.txt more/deep.txt requirements.txt",
        ),
        ({"train.py": "", "requirements.txt/x": ""}, ""),
        ({"train.sh": "python train.py", "train.py": "", "requirements.txt": ""}, "requirements.txt"),
    ],
)  # fmt: skip
def test_what_a_script_needs(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    root = make_tree(tmp_path / "project", files)
    (tmp_path / "secret.txt").touch()
    assert companions(root / next(iter(files))) == (tuple(expected.split()), ())


@pytest.mark.parametrize(
    "line",
    [
        "-e .",
        "--editable=./lib",
        ".",
        "./lib[all]  # mine",
        "lib @ file:lib",
        "wheels/a.whl",
        "-r ../secret.txt",
        "-c gone.txt",
    ],
)
def test_requirements_that_need_the_folder_are_not_packed(tmp_path: Path, line: str) -> None:
    files = {
        "train.py": "import a",
        "a.py": "",
        "requirements.txt": "-r more.txt\n",
        "more.txt": f"numpy\n{line}\n",
    }
    root = make_tree(tmp_path / "project", files)
    archive = pack(root / "train.py", cache_dir=tmp_path / "cache")
    assert names(archive.path) == ["a.py", "train.py"]
    assert archive.warnings == (
        f"requirements.txt is not packed, as more.txt refers to other files of its folder ({line}): "
        "to install it, pack the folder with --source-dir",
    )


def test_dependencies_replace_the_modules_of_their_name(tmp_path: Path) -> None:
    root = make_tree(
        tmp_path,
        {"train.py": "import a, lib.x", "a.py": "old", "lib/x.py": "old", "new/a.py": "new", "new/lib/x.py": "new"},
    )  # fmt: skip
    archive = pack(root / "train.py", [root / "new/a.py", root / "new/lib"], cache_dir=tmp_path / "cache")
    assert names(archive.path) == ["a.py", "lib/x.py", "train.py"]
    assert content(archive.path, "lib/x.py") == b"new"
    assert archive.companions == ()


def test_the_archive_follows_the_companions(tmp_path: Path) -> None:
    root = make_tree(
        tmp_path / "project", {"train.py": "from lib.a import x", "lib/a.py": "x = 1", "b.py": ""}
    )
    first = pack(root / "train.py", cache_dir=tmp_path / "cache")
    assert names(first.path) == ["lib/a.py", "train.py"]
    assert first.companions == ("lib/a.py",)
    assert pack(root / "train.py", cache_dir=tmp_path / "cache").sha256 == first.sha256
    (root / "lib/a.py").write_text("import b")
    assert names(pack(root / "train.py", cache_dir=tmp_path / "cache").path) == [
        "b.py",
        "lib/a.py",
        "train.py",
    ]


def test_a_folder_is_packed_as_it_is(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "project", {"train.py": "import a", "a.py": "", "b.py": ""})
    archive = pack(root, cache_dir=tmp_path / "cache")
    assert (names(archive.path), archive.companions) == (["a.py", "b.py", "train.py"], ())


def test_a_secret_in_an_imported_module_is_refused(tmp_path: Path) -> None:
    root = make_tree(tmp_path, {"train.py": "import keys", "keys.py": 'KEY = "ghp_' + "a1B2" * 9 + '"\n'})
    with pytest.raises(InvalidSource, match=r"keys\.py"):
        pack(root / "train.py", cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("name", ["helpers.py", "requirements.txt"])
def test_what_is_not_a_regular_file_is_not_read(tmp_path: Path, name: str) -> None:
    root = make_tree(tmp_path, {"train.py": "import helpers"})
    os.mkfifo(root / name)
    assert companions(root / "train.py") == ((), ())


def test_nested_code_ends_the_search(tmp_path: Path) -> None:
    root = make_tree(
        tmp_path,
        {"train.py": "import deep", "deep.py": "x = " + "-" * 5000 + "1\nimport other", "other.py": ""},
    )
    assert companions(root / "train.py").names in (("deep.py",), ("deep.py", "other.py"))
