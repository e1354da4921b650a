"""When a rank dies, stalls or disagrees, the others soon exit with an error that names the tensor and the rank."""

from __future__ import annotations

import pytest
from ranks import run_ranks

LABELS = {
    "small": "allreduce of wanted",
    "large": "allreduce of wanted",
    "training": "allreduce of gradients 1.bias ... 0.weight",
}


FAILURES = [
    ("is killed", "small"),
    ("is killed", "large"),
    ("is killed", "training"),
    ("exits", "small"),
    ("exits", "training"),
    ("raises", "small"),
    ("raises", "training"),
    ("stalls", "small"),
    ("stalls", "training"),
    ("is stopped", "small"),
    ("is stopped", "training"),
    ("disagrees", "small"),
    ("disagrees", "training"),
]


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("way, place", FAILURES)
def test_the_other_ranks_exit_with_an_error(
    way: str, place: str, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The ways that only a timeout ends. Under load, a short one would end the others, and name a slow rank.
    timeout = "6" if way in ("stalls", "is stopped") else "60"
    monkeypatch.setenv("CLOUDTRAIN_COLLECTIVE_TIMEOUT", timeout)
    ended = run_ranks("_fails.py", 3, way, place, str(rank), timeout=100, left=rank)
    for survivor in (other for number, other in enumerate(ended) if number != rank):
        assert survivor.returncode == 1, survivor.stderr
        error = survivor.stderr.rsplit("CollectiveError: ", 1)[-1]
        assert error.startswith(LABELS[place]), survivor.stderr
        assert f"rank {rank}" in error or f"[{rank}]" in error, error
