"""The rules of the house that no linter of its own holds."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
LONGEST = 600
MEDIAN = 200

TRAVELS = (
    "checkpoint", "contract", "distributed", "environment", "errors.py", "observe", "runtime", "storage",
)  # fmt: skip
"""What runs inside the job, where Python may be 3.9."""


def test_files_are_small() -> None:
    lengths = {
        path: path.read_bytes().count(b"\n")
        for folder in ("cloudtrain", "tests", "benchmarks", "examples")
        for path in (REPOSITORY / folder).rglob("*.py")
    }
    assert [path for path, length in lengths.items() if length > LONGEST] == []
    assert statistics.median(lengths.values()) < MEDIAN


def test_rooms_import_only_from_floors_below() -> None:
    done = _run("lint-imports", "--no-cache")
    assert done.returncode == 0, done.stdout


def test_what_travels_runs_on_python_3_9() -> None:
    paths = [str(REPOSITORY / "cloudtrain" / name) for name in TRAVELS]
    done = _run("vermin", "--quiet", "--no-tips", "--violations", "--target=3.9-", *paths)
    assert done.returncode == 0, done.stdout


def _run(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / command, *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
