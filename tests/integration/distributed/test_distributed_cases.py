"""Programs with many cases, each run by one rank without variables, and by two and three real ranks."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from ranks import PROGRAMS, case_names, failures

pytestmark = pytest.mark.proof("collectives of PyTorch", real="torch 2.13.0 on CPUs, 1 to 8 ranks")

ON_TWO_RANKS = ("adasum.py", "like_ddp.py")
"""The programs that CI runs on two ranks: Adasum differs for a power of two, and two summands have one order.

The soak runs the others on two ranks too. CI runs the same cases on three.
"""
CASES = [
    pytest.param(program.name, count, case, marks=[pytest.mark.soak] * in_soak)
    for program in sorted(PROGRAMS.glob("[!_]*.py"))
    for count in (1, 2, 3)
    for in_soak in [count == 2 and program.name not in ON_TWO_RANKS]
    for case in case_names(program.name)
]


@functools.cache  # a look at all tests takes 20 ms
def selected(session: pytest.Session, count: int) -> tuple[str, ...]:
    """The programs with a case that was selected for ``count`` ranks."""
    here = [item.callspec.params for item in session.items if item.path == Path(__file__)]
    return tuple(dict.fromkeys(parameters["program"] for parameters in here if parameters["count"] == count))


@pytest.mark.parametrize(("program", "count", "case"), CASES)
def test_case(request: pytest.FixtureRequest, program: str, count: int, case: str) -> None:
    found = failures(selected(request.session, count), count)[program, case]
    assert not found, "\n".join(found)
