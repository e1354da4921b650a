"""Slurm's lists of nodes."""

from __future__ import annotations

import pytest

from cloudtrain.runtime.outer_variables import without_outer_allocation
from cloudtrain.runtime.start.allocation import expand_nodelist


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node1", ["node1"]),
        ("b,a", ["b", "a"]),
        ("node[01-03,7],login", ["node01", "node02", "node03", "node7", "login"]),
        ("r[1-2]n[08-09]-ib", ["r1n08-ib", "r1n09-ib", "r2n08-ib", "r2n09-ib"]),
        ("127.0.0.[2-3]", ["127.0.0.2", "127.0.0.3"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
    ],
)
def test_a_list_in_order(text: str, expected: list[str]) -> None:
    assert expand_nodelist(text) == expected


@pytest.mark.parametrize("text", ["", "n[", "n[1-]", "n[a]", "n]", ",", "n[1-999999999]", "n[1]["])
def test_something_else(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a list|too many"):
        expand_nodelist(text)


def test_defaults_of_sbatch_belong_to_the_user_outside_a_job() -> None:
    environ = {
        "SBATCH_ACCOUNT": "ml",
        "SLURM_CONF": "/c",
        "SLURM_CPU_BIND": "x",
        "PMI_RANK": "0",
        "PATH": "/bin",
    }
    assert without_outer_allocation(environ) == (
        {"SBATCH_ACCOUNT": "ml", "SLURM_CONF": "/c", "PATH": "/bin"},
        ["PMI_RANK", "SLURM_CPU_BIND"],
    )
    inside = {**environ, "SLURM_JOB_ID": "7"}
    assert "SBATCH_ACCOUNT" in without_outer_allocation(inside)[1]
