"""A rank that dies or hangs: the others end soon, with an error that names the tensor and the rank."""

from __future__ import annotations

import pytest
from ranks import run_ranks


@pytest.mark.parametrize(
    ("way", "named"),
    [
        ("killed", "allreduce of large"),
        ("hangs", "allreduce of awaited"),
        ("exits in training", "allreduce of gradients 1.bias ... 0.weight"),
    ],
)
def test_the_others_end_with_one_clear_error(way: str, named: str) -> None:
    ended = run_ranks("_dies.py", 3, way, timeout=40)
    for rank, survivor in enumerate(ended[:2]):
        assert survivor.returncode == 1, survivor.stderr
        last_error = survivor.stderr.rsplit("CollectiveError: ", 1)[-1]
        assert last_error.startswith(f"{named} failed on rank {rank}: ")
        assert "Another rank died, hangs" in last_error
