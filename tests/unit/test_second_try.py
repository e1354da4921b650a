"""The plugin that decides which failed tests have a second try."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from second_try import FLAKY, Flaky, _name, may_run_again

TESTS = Path(__file__).parents[1]

FLAKY_TESTS = """
import pathlib, pytest

@pytest.mark.parametrize("name", ["plain", "a@b", "with space", "c[d]"])
def test_second(name, tmp_path_factory):
    mark = pathlib.Path(__file__).with_name(name)
    if not mark.exists():
        mark.touch()
        raise AssertionError("the first try")

def test_good():
    pass
"""


TODAY = datetime.date(2020, 5, 5)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs pytest in a folder with ``FLAKY_TESTS``."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_flaky.py").write_text(FLAKY_TESTS)

    def run(*arguments: str, listed: str) -> subprocess.CompletedProcess[str]:
        lists = f"import datetime, second_try as s; s.FLAKY = (s.Flaky({listed!r}, datetime.date.max, ''),)"
        (tmp_path / "listed.py").write_text(lists)
        plugins = ["-p", "second_try", "-p", "listed", "-p", "no:cacheprovider"]
        command = [
            sys.executable,
            "-m",
            "pytest",
            *plugins,
            "--second-try-to=failed",
            "--rootdir=.",
            *arguments,
        ]
        environ = {**os.environ, "PYTHONPATH": f"{TESTS}:{tmp_path}", "PYTEST_ADDOPTS": ""}
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)

    return run


def test_listed_tests_that_failed_can_be_run_again(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    first = run("-n", "2", "tests", listed="test_flaky.py")
    assert first.returncode == pytest.ExitCode.TESTS_FAILED, first.stdout
    names = (tmp_path / "failed").read_text().splitlines()
    assert len(names) == 4
    again = run(*names, listed="test_flaky.py")
    assert again.returncode == 0 and "4 passed" in again.stdout, again.stdout
    assert (tmp_path / "failed").read_text() == ""


def test_a_failure_that_is_not_listed_leaves_no_second_try(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = run("tests", listed="test_flaky.py::test_second[plain]")
    assert "No second try" in done.stdout
    assert (tmp_path / "failed").read_text() == ""


@pytest.mark.parametrize(
    ("listed", "included"),
    [
        ("a/test_a.py", True),
        ("a/test_a.py::test_one", True),
        ("a/test_a.py::test_one[2]", True),
        ("a/test_a.py::test_one[1]", False),
        ("a/test_a.py::test_on", False),
        ("a/test_a", False),
    ],
)
def test_what_an_entry_includes(listed: str, included: bool) -> None:
    name = "tests/a/test_a.py::test_one[2]"
    assert may_run_again(name, [Flaky(listed, TODAY, "")], TODAY) == included
    assert not may_run_again(name, [Flaky(listed, TODAY, "")], TODAY + datetime.timedelta(days=1))


def test_what_is_listed_exists() -> None:
    for one in FLAKY:
        file, _, name = one.test.partition("::")
        text = (TESTS / file).read_text()
        assert not name or f"def {name.partition('[')[0]}(" in text, one


@pytest.mark.parametrize(
    ("listed", "name"),
    [
        ("t.py::test_a", "t.py::test_a"),
        ("t.py::test_a@docker", "t.py::test_a"),
        ("t.py::test_a[x@y]", "t.py::test_a[x@y]"),
        ("t.py::test_a[x]@cases-2-[odd]", "t.py::test_a[x]"),
    ],
)
def test_the_group_is_not_part_of_the_name(listed: str, name: str) -> None:
    report = pytest.TestReport(listed, ("t.py", 1, ""), {}, "failed", None, "call")
    assert _name(report) == name
