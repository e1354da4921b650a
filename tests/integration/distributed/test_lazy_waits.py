"""On NCCL a wait only orders streams: the programs must not depend on its return. Shown without a GPU, and on GPUs."""

from __future__ import annotations

import signal

import pytest
from ranks import run_ranks

CASES = [
    ("join", 3, [0, 0, 0]),
    ("dead_before_a_step", 2, [0, 3]),
    ("dead_in_a_step", 3, [0, 3, 0]),
    ("dead_while_others_join", 2, [0, 3]),
    ("layers", 2, [0, 3]),
    ("raises_with_work_in_flight", 2, [1, 0]),
    ("leaves_with_work_in_flight", 2, [0, 0]),
    ("starts_again", 2, [0, 0]),
]


@pytest.mark.parametrize(("case", "count", "codes"), CASES)
def test_a_rank(case: str, count: int, codes: list[int]) -> None:
    check(case, count, codes, on_gpus=False)


@pytest.mark.gpu
@pytest.mark.parametrize(("case", "count", "codes"), CASES)
def test_a_rank_on_gpus(case: str, count: int, codes: list[int]) -> None:
    check(case, count, codes, on_gpus=True)


def check(case: str, count: int, codes: list[int], *, on_gpus: bool) -> None:
    ended = run_ranks("_lazily.py", count, case, timeout=200, on_gpus=on_gpus)
    found = [rank.returncode for rank in ended]
    if on_gpus and case == "dead_in_a_step":  # between hosts, PyTorch's watchdog may be faster, and aborts
        found = [0 if code == -signal.SIGABRT else code for code in found]
    assert found == codes, "\n".join(rank.stderr[-3000:] for rank in ended)
