"""Starts a benchmark with its smallest size, and checks that it prints the figures that the rows of the table have."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def run_smallest(command: str, folder: Path, timeout: float = 500) -> list[dict[str, Any]]:
    """The figures of ``python benchmarks/COMMAND --quick``, in a clean clone: nothing helps it to find its imports."""
    name, *arguments = command.split()
    environ = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "SLURM_CONF")}
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / name), *arguments, "--quick", "--json"],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    figures = [record for record in records if "missing" not in record]
    assert figures and all(figure["values"] for figure in figures), done.stdout
    return figures


def unsized(what: str) -> str:
    """The name of a figure without its numbers: a smoke test measures smaller sizes."""
    return re.sub(r"[\d,.]+", "N", what)
