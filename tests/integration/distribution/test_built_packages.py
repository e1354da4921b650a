"""The wheel and the source distribution: what is in them, and what they do where nothing else is installed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
BUILD_FILES = ("pyproject.toml", "setup.cfg", "setup.py", "README.md", "LICENSE")
RUNTIME = (
    "import pathlib, sys; from cloudtrain.packaging import pack_runtime;"
    "print(pack_runtime(pathlib.Path(sys.argv[1])).sha256)"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the source distribution of this tree, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("distribution")
    source = folder / "source"
    without = shutil.ignore_patterns("__pycache__", "commit.txt")
    shutil.copytree(REPOSITORY / "cloudtrain", source / "cloudtrain", ignore=without)
    shutil.copytree(REPOSITORY / "examples", source / "examples", ignore=without)
    for name in BUILD_FILES:
        shutil.copy(REPOSITORY / name, source)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(source)]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "built"]):
        subprocess.run([*git, *command], check=True)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    commit = subprocess.check_output([*git, "rev-parse", "--short=12", "HEAD"], text=True)
    (folder / "commit").write_text(commit)
    return folder


def wheel_of(built: Path) -> Path:
    [wheel] = (built / "dist").glob("*.whl")
    return wheel


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(built: Path) -> None:
    listed = subprocess.check_output(
        ["git", "-C", str(built / "source"), "ls-files", "cloudtrain", "examples"], text=True
    ).splitlines()
    tracked = {f"cloudtrain/{name}" if name.startswith("examples/") else name for name in listed}
    with zipfile.ZipFile(wheel_of(built)) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
        assert packed == {*tracked, "cloudtrain/commit.txt"}
        texts = {name: wheel.read(name) for name in wheel.namelist()}
    own = [str(place).encode() for place in (REPOSITORY, built)]
    assert [name for name, text in texts.items() if any(place in text for place in own)] == []


def test_the_source_distribution_has_no_tests(built: Path) -> None:
    [path] = (built / "dist").glob("*.tar.gz")
    with tarfile.open(path) as archive:
        top = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert top == {*BUILD_FILES, "PKG-INFO", "cloudtrain", "cloudtrain.egg-info", "examples"}


def test_an_installed_wheel_submits_a_job_and_bundles_the_same_runtime(built: Path, tmp_path: Path) -> None:
    """In an environment with cloudtrain's own dependencies only, outside of any clone."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    programs = tmp_path / "venv" / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python")]
    subprocess.run([*pip, "install", "--quiet", "--no-compile", str(wheel_of(built))], check=True)
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("CLOUDTRAIN_", "PYTHON"))
    }
    environ["CLOUDTRAIN_HOME"] = str(tmp_path / "state")

    def output(*command: str | Path) -> str:
        return subprocess.check_output(command, cwd=tmp_path, env=environ, text=True)

    commit = (built / "commit").read_text().strip()
    assert output(programs / "cloudtrain", "--version") == f"cloudtrain 0.1.0 (commit {commit})\n"
    (tmp_path / "train.py").write_text("import os\nprint('rank', os.environ['RANK'])\n")
    lines = output(programs / "cloudtrain", "submit", "train.py", "--processes-per-host", "2")
    assert sorted(lines.splitlines()[:2]) == ["[rank 0] rank 0", "[rank 1] rank 1"]
    (tmp_path / "in").mkdir()
    copied = output(programs / "cloudtrain", "examples", "jax", "in/jax").splitlines()
    assert {f"in/jax/{path.name}" for path in (REPOSITORY / "examples/jax").glob("*.*")} == {*copied}
    assert "](../" not in (tmp_path / "in/jax/README.md").read_text()  # a page that is not there
    bundled = output(programs / "python", "-c", RUNTIME, str(tmp_path / "own"))
    assert bundled == subprocess.check_output(
        [sys.executable, "-c", RUNTIME, str(tmp_path / "clone")], cwd=REPOSITORY, text=True
    )
    assert len(bundled) == len(hashlib.sha256().hexdigest()) + 1
