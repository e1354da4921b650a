"""The list of public scripts is well-formed, and the page about it shows the same. The scripts are not run here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from make_data import MAKERS
from script_list import Script, read_pythons, read_scripts
from script_table import table

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs" / "reference" / "public-scripts.md").read_text(encoding="utf-8")
SCRIPTS = read_scripts()
NEEDS_A_LIBRARY = {"sentiment", "tiny_bert", "tiny_gpt2"}
"""The data that is written by libraries which only the environments of the scripts have."""


def test_there_are_at_least_forty_scripts_with_different_names() -> None:
    assert len({script.name for script in SCRIPTS}) == len(SCRIPTS) >= 40


def test_job_names_are_valid() -> None:
    assert [s.name for s in SCRIPTS if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", s.name)] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_an_entry_is_complete(script: Script) -> None:
    repository = script.repository
    assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+", repository.url)
    assert re.fullmatch(r"[0-9a-f]{40}", repository.commit)
    assert repository.licence in {"Apache-2.0", "BSD-3-Clause", "MIT"}
    assert script.command.startswith(("cloudtrain submit ", "cloudtrain run "))
    assert script.path.endswith(".py")
    assert script.data | ({script.home} if script.home else set()) <= MAKERS.keys()
    assert script.python in read_pythons()
    assert bool(script.exit_status) == bool(script.error)
    assert script.error or script.prints or script.model or script.output, "nothing shows that it ran"
    for pattern in script.prints:
        re.compile(pattern)


def test_the_page_shows_the_table_of_the_list() -> None:
    assert table(SCRIPTS) in PAGE, "python tests/e2e/public_scripts table prints it"


def test_the_page_shows_the_interpreters() -> None:
    for name, python in read_pythons().items():
        assert f"| `{name}` | {python['about']} | `{python['install'].strip()}` |" in PAGE


def test_all_data_is_used() -> None:
    assert {name for script in SCRIPTS for name in (*script.data, script.home) if name} == MAKERS.keys()


@pytest.mark.parametrize("name", sorted(MAKERS.keys() - NEEDS_A_LIBRARY))
def test_data_is_small(name: str, tmp_path: Path) -> None:
    MAKERS[name](tmp_path)
    files = [path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert sum(files) < 2_000_000


def test_fetch_names_each_repository_and_its_commit() -> None:
    printed = _list("fetch").stdout
    for repository in {script.repository for script in SCRIPTS}:
        assert f"{repository.url} {repository.commit}\n" in printed


def test_run_leaves_out_what_it_cannot_run(tmp_path: Path) -> None:
    done = _list("run", "--checkouts", str(tmp_path), "sdk-mxnet-mnist", "sdk-sklearn-mnist")
    assert "needs --python mxnet=PATH" in done.stdout
    assert "there is no " in done.stdout
    assert done.stdout.endswith("0 as listed, 0 differs, 2 left out\n")
    assert done.returncode == 0


def test_run_refuses_an_unknown_name(tmp_path: Path) -> None:
    done = _list("run", "--checkouts", str(tmp_path), "no-such-script")
    assert done.returncode == 2
    assert "no script of the list is named no-such-script" in done.stderr


def _list(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPOSITORY / "tests/e2e/public_scripts"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)
