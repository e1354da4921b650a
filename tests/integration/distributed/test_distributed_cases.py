"""Programs with many cases, each run by one rank without variables, and by two and three real ranks."""

from __future__ import annotations

import pytest
from ranks import PROGRAMS, case_names, failures

CASES = [
    (program.name, count, case)
    for program in sorted(PROGRAMS.glob("[!_]*.py"))
    for count in (1, 2, 3)
    for case in case_names(program.name)
]


@pytest.mark.parametrize(("program", "count", "case"), CASES)
def test_case(program: str, count: int, case: str) -> None:
    found = failures(program, count)[case]
    assert not found, "\n".join(found)
