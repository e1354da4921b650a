"""The plugin that lists failed tests for a second try."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from second_try import _name

TESTS = Path(__file__).parents[1]

FLAKY = """
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


def test_the_listed_tests_are_those_that_failed_and_can_be_run_again(tmp_path: Path) -> None:
    (tmp_path / "test_flaky.py").write_text(FLAKY)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-p", "second_try", "-p", "no:cacheprovider", *arguments]
        environ = {**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_ADDOPTS": ""}
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)

    first = run("-n", "2", "--failed-to=failed", ".")
    assert first.returncode == pytest.ExitCode.TESTS_FAILED, first.stdout
    names = (tmp_path / "failed").read_text().splitlines()
    assert len(names) == 4
    again = run("--failed-to=failed", *names)
    assert again.returncode == 0 and "4 passed" in again.stdout, again.stdout
    assert (tmp_path / "failed").read_text() == ""


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
