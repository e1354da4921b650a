"""A thousand jobs in the queue of a real Slurm, watched by ten processes: few calls of its commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "on_slurm.py"
SECONDS = 120.0


def test_a_thousand_jobs_take_a_call_in_ten_seconds() -> None:
    command = [sys.executable, str(BENCHMARK), "watch", "--seconds", f"{SECONDS:g}", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=900)
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    found = {figure["what"].rpartition(": ")[2]: figure["values"][0] for figure in figures}
    assert found["descriptions"] > 1000
    # the places in the queue, which take the jobs of all users, are a second call; the next one is later for that
    assert found["calls"] <= 1 + SECONDS / 10
    assert found["most calls in 10 s"] <= 2
    assert found["calls after the end"] <= 6
