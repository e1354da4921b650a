"""The gate for the cost of everyday commands: this tree passes, and a slower one does not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
BENCHMARK = REPOSITORY / "benchmarks" / "regression.py"

pytestmark = pytest.mark.skipif(
    not shutil.which("valgrind") and os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1",
    reason="valgrind is not installed",
)


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, str(BENCHMARK), "--json", *arguments], env=environ, capture_output=True, text=True
    )


def _ratios(done: subprocess.CompletedProcess[str]) -> dict[str, float]:
    records = map(json.loads, done.stdout.splitlines())
    return {record["what"]: record["values"][0] for record in records if "what" in record}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(
            ["from cloudtrain import Estimator", "cloudtrain --help", "cloudtrain submit --dry-run"],
            id="without a job",
        ),
        pytest.param(["cloudtrain submit"], id="a job", marks=pytest.mark.soak),
    ],
)
def test_everyday_commands_cost_what_the_reference_says(names: list[str]) -> None:
    done = _run(*(argument for name in names for argument in ("--only", name)))
    assert done.returncode == 0, f"{done.stderr}\nbenchmarks/README.md says what to do"
    if len(names) > 1:  # the job is left out where it is too slow under valgrind
        assert len(_ratios(done)) == len(names)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_an_injected_import_fails(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "cloudtrain", tmp_path / "cloudtrain")
    main = tmp_path / "cloudtrain" / "__main__.py"
    text = main.read_text(encoding="utf-8")
    main.write_text(text.replace("\nimport os\n", "\nimport os\nimport xmlrpc.client\n"), encoding="utf-8")
    name = "cloudtrain --help"
    done = _run("--tree", str(tmp_path), "--only", name)
    assert done.returncode == 1 and f"{name}: " in done.stderr, done.stderr
    assert _ratios(done)[f"cost of `{name}`"] > 1.1
