"""The list of Horovod's suites is well-formed, its page shows the same, and its runner distinguishes outcomes.

Horovod's suites are not run here. A small suite is.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest
from suite_list import LAUNCHERS, Part, read_list, table, valid_name
from suite_outcome import compare, read_outcome

FOLDER = Path(__file__).parent
OWN = FOLDER / "own"
OWN_LIST = OWN / "own.yaml"
REPOSITORY = FOLDER.parents[2]
PAGE = (REPOSITORY / "docs" / "reference" / "horovod.md").read_text(encoding="utf-8")
SUITES = read_list()


def test_names_are_different_and_valid_as_names_of_jobs() -> None:
    names = [part.name for part in SUITES.parts]
    assert len(set(names)) == len(names)
    assert [name for name in names if not valid_name(name)] == []


@pytest.mark.parametrize("part", SUITES.parts, ids=lambda part: part.name)
def test_a_part_is_complete(part: Part) -> None:
    assert part.launcher in LAUNCHERS
    assert part.ranks in (2, 4)
    assert part.timeout <= 600
    assert part.file.startswith("test/parallel/")
    assert all(re.fullmatch(r"test_\w+", test) and reason for test, reason in part.fails.items())
    assert part.not_run or part.passed or part.skipped or part.fails


def test_the_page_shows_the_tables_of_the_list() -> None:
    assert table(SUITES.parts) in PAGE, "python tests/e2e/horovod_suites table prints them"


def test_fetch_names_the_commit() -> None:
    assert f"{SUITES.url} {SUITES.commit}\n" in _call("fetch").stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize("launcher", ["run", pytest.param("horovod", marks=pytest.mark.soak)])
def test_a_suite_is_compared_with_the_list(launcher: str, tmp_path: Path) -> None:
    done = _call("--list", OWN_LIST, "run", "--checkout", OWN, "--work", tmp_path, f"own-{launcher}-2")
    assert done.stdout.endswith("1 as listed, 0 differs, 0 left out\n"), done.stdout
    assert done.returncode == 0
    outcome = read_outcome(next(tmp_path.glob("run-*/own-*/results")))
    part = next(part for part in read_list(OWN_LIST).parts if part.launcher == launcher)
    assert compare(part, outcome) == []
    other = dataclasses.replace(part, passed=3, skipped=0, fails={"test_passes": "it should"})
    assert compare(other, outcome) == [
        "test_fails_on_the_last_rank failed: rank 1: AssertionError: the last rank",
        "test_passes did not fail",
        "2 passed, listed: 3",
        "2 skipped, listed: 0",
    ]


@pytest.mark.timeout(300)
def test_a_hang_is_reported_with_its_test(tmp_path: Path) -> None:
    done = _call("--list", OWN_LIST, "run", "--checkout", OWN, "--work", tmp_path, "hang-run-2")
    assert "it did not end in 20 s\n" in done.stdout
    assert "2 of 2 ranks did not end test_hangs\n" in done.stdout
    assert done.returncode == 1
    results = next(tmp_path.glob("run-*/hang-run-2/results"))
    assert subprocess.run(["pgrep", "-f", str(results)], capture_output=True).stdout == b"", "ranks still run"


def test_run_leaves_out_a_part_without_its_interpreter_or_its_file(tmp_path: Path) -> None:
    done = _call("run", "--checkout", tmp_path, "mxnet-mpi-2", "torch-run-2")
    assert "it needs --python mxnet=PATH" in done.stdout
    assert "there is no " in done.stdout
    assert done.stdout.endswith("0 as listed, 0 differs, 2 left out\n")
    assert done.returncode == 0


def test_run_refuses_an_unknown_name(tmp_path: Path) -> None:
    done = _call("run", "--checkout", tmp_path, "no-such-part")
    assert done.returncode == 2
    assert "no part of the list is named no-such-part" in done.stderr


def _call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=500)
