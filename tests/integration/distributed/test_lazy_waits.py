"""On NCCL a wait only orders streams: what must not depend on "wait returned", shown without a GPU."""

from __future__ import annotations

import pytest
from ranks import run_ranks


@pytest.mark.parametrize(
    ("case", "count", "codes"),
    [
        ("join", 3, [0, 0, 0]),
        ("dead_before_a_step", 2, [0, 3]),
        ("dead_in_a_step", 3, [0, 3, 0]),
        ("dead_while_others_join", 2, [0, 3]),
        ("raises_with_work_in_flight", 2, [1, 0]),
        ("leaves_with_work_in_flight", 2, [0, 0]),
        ("starts_again", 2, [0, 0]),
    ],
)
def test_a_rank(case: str, count: int, codes: list[int]) -> None:
    ended = run_ranks("_lazily.py", count, case, timeout=45)
    assert [rank.returncode for rank in ended] == codes, "\n".join(rank.stderr[-3000:] for rank in ended)
