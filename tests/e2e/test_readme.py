"""Every command and snippet of the README runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from documents import REPOSITORY, Reader
from pages import PASSED, lock_line, parametrize_pages


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_pages(metafunc, "page", ["README.md"])


@pytest.mark.timeout(400)
def test_every_command_and_snippet_runs(
    page: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    reader = Reader(tmp_path)
    try:
        assert reader.follow(REPOSITORY / page) > 5
    finally:
        reader.end()
    record_property(PASSED, lock_line(page))
