"""Starts a benchmark with its smallest size, and checks that it prints the figures that the rows of the table have."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def run_smallest(command: str, folder: Path, timeout: float = 500) -> list[dict[str, Any]]:
    """The figures of ``python benchmarks/COMMAND --quick``, in a clean clone: nothing helps it to find its imports."""
    name, *arguments = command.split()
    environ = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "SLURM_CONF")}
    process = subprocess.Popen(
        [sys.executable, str(BENCHMARKS / name), *arguments, "--quick", "--json"],
        cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=timeout)
    finally:
        with suppress(ProcessLookupError):  # also its ranks, if it is too slow
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors
    records = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    figures = [record for record in records if "missing" not in record]
    assert figures and all(figure["values"] for figure in figures), output
    return figures


def unsized(what: str) -> str:
    """The name of a figure without its numbers: a smoke test measures smaller sizes."""
    return re.sub(r"[\d,.]+", "N", what)
