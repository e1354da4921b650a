"""Two requirements files have the same content if an installer does the same with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudtrain.runtime.inputs.requirements import content_of

BASE = "torch>=2\nnumpy ; python_version > '3'\n-r more.txt\n./lib\n"


def content(folder: Path) -> list[str]:
    return list(content_of(folder / "requirements.txt", folder))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "requirements.txt").write_text(BASE)
    (tmp_path / "more.txt").write_text("scipy\n-r requirements.txt\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "setup.py").write_text("setup()")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", f"# a comment\n\n{BASE}"),
        ("requirements.txt", BASE.replace("\n", "   # why\n")),
        ("requirements.txt", BASE.replace("torch>=2", "  torch>=2 \\\n")),
        ("notes.txt", "torch"),
        ("train.py", "print()"),
        ("lib/lib.egg-info/PKG-INFO", "built"),
        ("lib/build/lib/x.py", "built"),
        ("lib/__pycache__/x.pyc", "built"),
    ],
)
def test_the_same_content(folder: Path, name: str, text: str) -> None:
    before = content(folder)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    assert content(folder) == before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", BASE.replace("torch>=2", "torch>=3")),
        ("requirements.txt", f"--index-url https://example.org/simple\n{BASE}"),
        ("more.txt", "scipy<2"),
        ("lib/setup.py", "setup(name='other')"),
        ("lib/x.py", ""),
    ],
)
def test_other_content(folder: Path, name: str, text: str) -> None:
    before = content(folder)
    (folder / name).write_text(text)
    assert content(folder) != before


@pytest.mark.parametrize("line", ["{path}", "-e {path}", "lib @ file://{path}", "{path}[extra] ; x"])
@pytest.mark.parametrize("project", ["pyproject.toml", "setup.py"])
def test_local_projects_count_by_their_content(tmp_path: Path, line: str, project: str) -> None:
    path = tmp_path / "lib"
    path.mkdir()
    (path / project).write_text("")
    (tmp_path / "requirements.txt").write_text(line.format(path=path))
    before = content(tmp_path)
    (path / "x.py").write_text("")
    assert len(before) == 2
    assert content(tmp_path)[0] == before[0]
    assert content(tmp_path) != before


@pytest.mark.parametrize("line", ["-f {path}", "--find-links={path}"])
def test_folders_of_packages_count_by_their_packages(tmp_path: Path, line: str) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "requirements.txt").write_text(line.format(path=tmp_path / "lib"))
    before = content(tmp_path)
    (tmp_path / "lib" / "notes.txt").write_text("")
    assert content(tmp_path) == before
    (tmp_path / "lib" / "x-1.0-py3-none-any.whl").write_text("")
    assert content(tmp_path) != before


@pytest.mark.parametrize(
    "line", ["/", "-e /", "-f /", "x @ file:///", "-f /proc", "-r /", "//", "x @ file://]"]
)
def test_other_folders_are_not_read(tmp_path: Path, line: str) -> None:
    (tmp_path / "requirements.txt").write_text(line)
    assert content(tmp_path) == [line]


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", None])
def test_no_requirements(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "requirements.txt").write_text(text)
    assert content(tmp_path) == []
