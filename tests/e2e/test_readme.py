"""Every command and snippet of the README runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from documents import REPOSITORY, Reader


@pytest.mark.timeout(400)
def test_every_command_and_snippet_runs(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    try:
        assert reader.follow(REPOSITORY / "README.md") > 5
    finally:
        reader.end()
