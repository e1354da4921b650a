"""Dry runs are as they were: see dry_runs.py."""

from __future__ import annotations

import pytest
from dry_runs import BASES, FOLDER, document


@pytest.mark.parametrize("kind", BASES)
def test_dry_runs_are_as_they_were(kind: str) -> None:
    expected = (FOLDER / f"{kind}.txt").read_text()
    assert document(kind) == expected, "if that is meant, run: python tests/unit/platforms/dry_runs.py"


def test_every_file_is_compared() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(BASES)
