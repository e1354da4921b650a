"""A thousand jobs in the queue of a real Slurm, watched by ten processes: few calls of its commands."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from slurm_watch import watch

SECONDS = 120.0


def test_a_thousand_jobs_take_a_call_in_ten_seconds() -> None:
    found = watch(1000, SECONDS)
    assert found.looks > 1000
    # the places in the queue, which take the jobs of all users, are a second call; the next one is later for that
    assert found.count <= 1 + SECONDS / 10
    assert found.most_in_ten_seconds <= 2
    assert sum(found.calls_at_end.values()) <= 6
