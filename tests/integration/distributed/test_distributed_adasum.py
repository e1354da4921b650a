"""Adasum over a tree of two levels, and one rank beyond the power of two."""

from __future__ import annotations

import pytest
from ranks import case_names, failures


@pytest.mark.parametrize("case", case_names("adasum.py"))
def test_case_of_five_ranks(case: str) -> None:
    found = failures(("adasum.py",), 5)["adasum.py", case]
    assert not found, "\n".join(found)
