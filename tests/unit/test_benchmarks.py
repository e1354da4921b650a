"""Every benchmark of `benchmarks/README.md` finds what it imports, in a clean clone and from any folder."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

IMPORT_EACH = """
import importlib, os, sys, traceback
import boto3, numpy, torch  # once, for all
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    child = os.fork()
    if not child:
        code = 1
        try:
            importlib.import_module(name)
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    if os.waitpid(child, 0)[1]:
        print(name)
"""


def test_each_finds_what_it_imports(tmp_path: Path) -> None:
    named = re.findall(r"`python benchmarks/(\w+)\.py", (BENCHMARKS / "README.md").read_text())
    existing = [path.stem for path in BENCHMARKS.glob("[a-z]*.py") if path.stem != "rows"]
    assert sorted({*named}) == sorted(existing)
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH, str(BENCHMARKS), *named],
        cwd=tmp_path, env=environ, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_a_test_starts_each() -> None:
    folder = Path(__file__).parents[1]
    tests = [*folder.glob("integration/*/test_*benchmark*.py"), folder / "unit/plan/test_model.py"]
    text = "".join(path.read_text() for path in tests)
    existing = [path.name for path in BENCHMARKS.glob("[a-z]*.py") if path.stem != "rows"]
    assert [name for name in existing if f'"{name}' not in text] == []


def test_each_row_belongs_to_a_benchmark_and_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("rows", BENCHMARKS / "rows.py")
    assert spec and spec.loader
    rows = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "rows", rows)
    spec.loader.exec_module(rows)
    names = [row.name for each in rows.BENCHMARKS for row in each.rows]
    assert len(names) == len(set(names))
    for each in rows.BENCHMARKS:
        script, *arguments = each.command.split()
        text = (BENCHMARKS / script).read_text()
        assert all(f'"{part}": ' in text for part in arguments if re.fullmatch("[a-z_]+", part)), each.command


def _run(folder: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, str(folder / "_run.py"), *arguments],
        env={**own, "HOME": str(home)}, capture_output=True, text=True,
    )  # fmt: skip


def test_a_single_row_is_measured_again_and_compared_with_the_last_run(tmp_path: Path) -> None:
    folder = tmp_path / "benchmarks"
    shutil.copytree(BENCHMARKS, folder)
    rows = (folder / "rows.py").read_text()
    (folder / "rows.py").write_text(re.sub(r'("start.py run",\s+"--runs )5"', r'\g<1>1"', rows))
    (folder / "results.json").unlink(missing_ok=True)
    (folder / "RESULTS.md").write_text(
        "# Former results\n<!-- What follows is written by hand. -->\n\n## GPUs\n"
    )
    (home := tmp_path / "home").mkdir()
    name = "cloudtrain run -np 2"
    first, second = (_run(folder, home, "--only", name, "--json") for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    [row] = json.loads(second.stdout)["rows"]
    assert row["row"] == name and row["ours"].endswith("s") and row["load"] and "%" in row["last"]
    assert row["outcome"] in ("met", "missed")
    assert not json.loads(first.stdout)["rows"][0]["last"]
    page = (folder / "RESULTS.md").read_text()
    assert (
        f"| {name} | " in page
        and "## Start run" in page
        and page.endswith("## GPUs\n")
        and "Former" not in page
    )
    assert [*json.loads((folder / "results.json").read_text())] == ["start.py run"]


def test_a_folder_that_others_can_replace_is_refused(tmp_path: Path) -> None:
    (home := tmp_path / "home").mkdir()
    home.chmod(0o777)
    done = _run(BENCHMARKS, home, "--quick", "--only", "output_rate.py")
    assert done.returncode != 0 and "the last run is not read" in done.stderr
