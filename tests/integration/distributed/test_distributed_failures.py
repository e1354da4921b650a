"""When a rank dies, stalls or disagrees, the others soon exit with an error that names the tensor and the rank."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from _pytest.mark.structures import ParameterSet
from ranks import run_ranks

LABELS = {
    "small": "allreduce of wanted",
    "large": "allreduce of wanted",
    "training": "allreduce of gradients 1.bias ... 0.weight",
}


@pytest.fixture(autouse=True)
def _short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDTRAIN_COLLECTIVE_TIMEOUT", "6")


PLACES = {
    "is killed": ("small", "large", "training"),
    "exits": ("small", "training"),
    "raises": ("small", "training"),
    "stalls": ("small", "training"),
    "is stopped": ("small", "training"),
    "disagrees": ("small", "training"),
}
FAILURES = [(way, place) for way, places in PLACES.items() for place in places]


def matrix() -> Iterator[ParameterSet]:
    """Every failure on every rank. CI runs each failure on one rank, and each rank as often as the others."""
    for number, (way, place) in enumerate(FAILURES):
        for rank in range(3):
            in_ci = rank == number % 3
            yield pytest.param(way, place, rank, marks=() if in_ci else pytest.mark.soak)


@pytest.mark.parametrize(("way", "place", "rank"), list(matrix()))
def test_the_other_ranks_exit_with_an_error(way: str, place: str, rank: int) -> None:
    ended = run_ranks("_fails.py", 3, way, place, str(rank), timeout=100, left=rank)
    for survivor in (other for number, other in enumerate(ended) if number != rank):
        assert survivor.returncode == 1, survivor.stderr
        error = survivor.stderr.rsplit("CollectiveError: ", 1)[-1]
        assert error.startswith(LABELS[place]), survivor.stderr
        assert f"rank {rank}" in error or f"[{rank}]" in error, error
