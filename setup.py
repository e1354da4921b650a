"""Adds the examples, and the commit, to a wheel or source distribution. Everything else is in setup.cfg."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
FILE = "cloudtrain/commit.txt"


def commit() -> str:
    """The commit of this clone, with ``-dirty`` if files differ from it; empty without git."""
    if not (HERE / ".git").exists():
        return ""
    describe = ["git", "-C", str(HERE), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty"]
    return subprocess.run(describe, capture_output=True, text=True, check=False).stdout.strip()


def record(folder: str) -> None:
    found = commit()  # a source distribution has the file already
    if found:
        Path(folder, FILE).write_text(f"{found}\n", encoding="utf-8")


def copy_examples(target: Path) -> None:
    """Copy what belongs to the examples: a clone may also have their data and results."""
    for path in (HERE / "examples").rglob("*"):
        if path.suffix in (".md", ".py", ".yaml") and "__pycache__" not in path.parts:
            copied = target / path.relative_to(HERE / "examples")
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copied)


class Build(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            record(self.build_lib)
            copy_examples(Path(self.build_lib, "cloudtrain", "examples"))


class SourceDistribution(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        record(base_dir)
        copy_examples(Path(base_dir, "examples"))


setup(cmdclass={"build_py": Build, "sdist": SourceDistribution})
