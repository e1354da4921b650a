"""Links: those inside the tree stay, those that lead out are followed, loops are refused."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest
from packaging_trees import content, make_tree, names

from cloudtrain.errors import InvalidSource
from cloudtrain.packaging import pack


def links(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as tar:
        return {member.name: member.linkname for member in tar if member.issym()}


def test_links_inside_stay_and_are_relative(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "src", {"a/x.py": "", "b/": "", "train.py": ""})
    (root / "b" / "relative").symlink_to("../a/x.py")
    (root / "b" / "absolute").symlink_to(root / "a" / "x.py")
    (root / "b" / "through the name of the root").symlink_to("../../src/a")
    (root / "folder").symlink_to("a")
    (root / "top").symlink_to(".")
    (root / ".#train.py").symlink_to("ann@host.4711:1700000000")  # Emacs edits it
    archive = pack(root, cache_dir=tmp_path / "cache")
    assert links(archive.path) == {
        "b/relative": "../a/x.py",
        "b/absolute": "../a/x.py",
        "b/through the name of the root": "../a",
        "folder": "a",
        "top": ".",
    }
    assert archive.warnings == ()


def test_links_that_lead_out_are_replaced_by_their_targets(tmp_path: Path) -> None:
    shared = make_tree(
        tmp_path / "shared", {"a.py": "a", "sub/b.py": "b", "x.log": "", ".gitignore": "*.log\n"}
    )
    (shared / "inner").symlink_to("sub")
    root = make_tree(tmp_path / "src", {"train.py": ""})
    (root / "shared").symlink_to("../shared")
    (root / "one.py").symlink_to(shared / "a.py")
    archive = pack(root, cache_dir=tmp_path / "cache").path
    packed = ["one.py", "shared/.gitignore", "shared/a.py", "shared/inner", "shared/sub/b.py", "train.py"]
    assert names(archive) == packed
    assert links(archive) == {"shared/inner": "sub"}
    assert content(archive, "one.py") == b"a"


def test_a_source_that_is_a_link(tmp_path: Path) -> None:
    make_tree(tmp_path / "src", {"a/x.py": ""})
    (tmp_path / "src" / "link").symlink_to("a")
    (tmp_path / "named").symlink_to("src")
    archives = [pack(tmp_path / name, cache_dir=tmp_path / "cache") for name in ("src", "named")]
    assert archives[0].sha256 == archives[1].sha256


def test_a_warning_for_a_link_to_an_ignored_file(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "src", {"data/a.csv": "", ".gitignore": "/data/\n"})
    (root / "train.csv").symlink_to("data/a.csv")
    (warning,) = pack(root, cache_dir=tmp_path / "cache").warnings
    assert "train.csv" in warning and "data/a.csv" in warning


def test_a_warning_for_a_link_to_nothing_in_the_source(tmp_path: Path) -> None:
    """As git keeps it: repositories of recipes have such links."""
    root = make_tree(tmp_path / "src", {"a/train.py": ""})
    (root / "a" / "steps").symlink_to("../tools/steps")
    archive = pack(root, cache_dir=tmp_path / "cache")
    assert archive.warnings == ("the link a/steps points to tools/steps, which does not exist",)
    assert links(archive.path) == {"a/steps": "../tools/steps"}


def _loop(root: Path) -> None:
    (root / "loop").symlink_to("loop")


def _contains_itself(root: Path) -> None:
    (root / "up").symlink_to("..")


def _loop_outside(root: Path) -> None:
    other = make_tree(root.parent / "other", {"a.py": ""})
    (root / "other").symlink_to(other)
    (other / "back").symlink_to(root)


def _broken(root: Path) -> None:
    (root / "out").symlink_to("../not/there")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_loop, "src/loop.*symbolic links"),
        (_contains_itself, "src/up.*contains the link itself"),
        (_loop_outside, "other/back.*contains the link itself"),
        (_broken, "src/out.*does not exist"),
    ],
)
def test_refused(tmp_path: Path, make: object, message: str) -> None:
    root = make_tree(tmp_path / "src", {"train.py": ""})
    assert callable(make)
    make(root)
    with pytest.raises(InvalidSource, match=message) as caught:
        pack(root, cache_dir=tmp_path / "cache")
    assert ".cloudtrainignore" in caught.value.hint
    assert os.listdir(tmp_path / "cache") == []
    name = message.split("/")[1].split(".")[0]
    (root / ".cloudtrainignore").write_text(f"{name}\n")
    pack(root, cache_dir=tmp_path / "cache")


def test_hard_links_are_two_files(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "src", {"a.py": "same"})
    os.link(root / "a.py", root / "b.py")
    archive = pack(root, cache_dir=tmp_path / "cache")
    assert content(archive.path, "a.py") == content(archive.path, "b.py") == b"same"
