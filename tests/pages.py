"""Which pages of the documentation CI runs: those that changed, or whose named code changed. A plugin of `conftest`.

`LOCK` holds a hash of each page that passed. The hash covers the blocks of the page that a Reader saves or runs, and
the files that these name: the modules they import, the commands they call, the examples they use; of an example's
README, all files of the example. No sentence between the blocks decides how they run. Of modules that hundreds of tests
of every run use as pages do, `USED_BY_ALL`, it covers what they offer. Benchmarks are pages too, with all their text.
CI runs a page whose hash differs. Every other run records the pages that passed, and the lock is committed;
``./scripts/soak`` runs them all. A comparison with an earlier commit would fail in a shallow clone.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from documents import REPOSITORY, read_blocks

import cloudtrain

PACKAGE = REPOSITORY / "cloudtrain"
LOCK = Path(__file__).parent / "e2e" / "pages.lock"
PASSED = "page"
"""The property in which a test records the page that passed, as a line of the lock."""

USED_BY_ALL = (PACKAGE / "cli" / "submit.py", PACKAGE / "estimator.py")
"""Modules that submit jobs. All pages together take as much CPU as a quarter of CI."""

_OPTION = re.compile(r"--[a-z][\w-]*(/--[\w-]+)?")
_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+)?import\s+(\([^)]*\)|[\w., ]+)", re.MULTILINE)
_DOTTED = re.compile(r"\b(?:cloudtrain|horovod)(?:\.\w+)+")
_COMMAND = re.compile(r"\bcloudtrain ([a-z0-9]+)")
_FILE = re.compile(r"\b(?:examples|scripts|containers|benchmarks)/[\w./-]*\w|\bsetup\.cfg\b")


def passed_before(page: str) -> bool:
    """Whether this version of the page passed. ``page`` is relative to the repository."""
    return read_lock().get(page) == page_hash(page)


def parametrize_pages(metafunc: pytest.Metafunc, name: str, pages: Iterable[str]) -> None:
    """Give the parameter ``name`` each of the pages. A soak runs all of them, CI those that have not passed before."""
    if name in metafunc.fixturenames:
        everything = metafunc.config.getoption("--soak")
        marks = {True: [pytest.mark.soak], False: []}
        rows = [pytest.param(page, marks=marks[everything or passed_before(page)]) for page in pages]
        metafunc.parametrize(name, rows)


def read_lock() -> dict[str, str]:
    lines = LOCK.read_text().splitlines() if LOCK.exists() else []
    return {page: digest for digest, page in (line.split("  ", 1) for line in lines)}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if os.environ.get("CI"):
        return
    passed = [
        str(value).split("  ", 1)
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == PASSED and report.when == "call"
    ]
    pages = {**read_lock(), **{page: digest for digest, page in passed}}
    text = "".join(f"{pages[page]}  {page}\n" for page in sorted(pages) if (REPOSITORY / page).exists())
    if passed and text != (LOCK.read_text() if LOCK.exists() else ""):
        LOCK.write_text(text)
        terminalreporter.write_line(f"{LOCK.relative_to(REPOSITORY)} has changed: commit it", yellow=True)


def lock_line(page: str) -> str:
    return f"{page_hash(page)}  {page}"


def page_hash(page: str) -> str:
    path = REPOSITORY / page
    text = followed_text(path)
    named = named_files(text)
    if page.startswith("examples/"):
        named |= {file for file in path.parent.iterdir() if file.suffix in (".py", ".yaml")}
    if page.startswith("benchmarks/"):
        named |= {*path.parent.glob("_*.py")}
    digest = hashlib.sha256(f"{page}\0{text}\0".encode())
    for file in sorted(named):
        content = offered(file.read_text()).encode() if file in USED_BY_ALL else file.read_bytes()
        digest.update(f"{file.relative_to(REPOSITORY)}\0".encode() + hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]


def followed_text(path: Path) -> str:
    """The blocks of a Markdown page that a Reader saves or runs; of another file, its text."""
    if path.suffix != ".md":
        return path.read_text(encoding="utf-8")
    return "".join(
        f"```{block.language} {block.file_name}\n{block.text}```\n"
        for block in read_blocks(path)
        if block.is_followed
    )


def named_files(text: str) -> set[Path]:
    """The files of the repository that a text names; of a folder, all files.

    Of a package, only what it offers: tests in every run cover its modules.
    """
    modules = {path / "__init__.py" if path.is_dir() else path for path in _modules(text)}
    found = {path for path in modules if path.exists()}
    for target in (*_commands(text), *_files(text)):
        if target.is_dir():
            found |= {
                path for path in target.rglob("*") if path.is_file() and "__pycache__" not in path.parts
            }
        else:
            found.add(target)
    return found


def offered(code: str) -> str:
    """The options of a module's commands, and its public functions with their parameters."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _OPTION.fullmatch(node.value):
            found.add(node.value)
        elif isinstance(node, ast.FunctionDef) and (node.name == "__init__" or node.name[0] != "_"):
            found.add(f"{node.name}({ast.unparse(node.args)})")
    return "\n".join(sorted(found))


def _modules(text: str) -> Iterator[Path]:
    names = set(_DOTTED.findall(text))
    for origin, imported in _IMPORT.findall(text):
        for name in re.findall(r"(\w[\w.]*)(?:\s+as\s+\w+)?", imported):
            names.add(f"{origin}.{name}" if origin else name)
    for name in names:
        first, *rest = name.split(".")
        if first == "horovod":
            yield PACKAGE / "alias" / "horovod"
            rest = ["distributed", *rest]
        elif first != "cloudtrain":
            continue
        elif rest and isinstance(getattr(cloudtrain, rest[0], None), type):
            rest = getattr(cloudtrain, rest[0]).__module__.split(".")[1:]
        path = PACKAGE
        for part in rest:
            below = path / part if (path / part).is_dir() else path / f"{part}.py"
            if not below.exists():
                break
            path = below
        if path != PACKAGE:
            yield path


def _commands(text: str) -> Iterator[Path]:
    for name in set(_COMMAND.findall(text)):
        for path in (PACKAGE / "cli" / f"{name}.py", PACKAGE / "cli" / name):
            if path.exists():
                yield path


def _files(text: str) -> Iterator[Path]:
    for name in set(_FILE.findall(text)):
        path = REPOSITORY / name
        if path.is_file() or (path.exists() and path.parent != REPOSITORY):
            yield path
