"""Advice can be followed."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_nothing_is_installed_from_a_distribution_that_does_not_exist() -> None:
    """cloudtrain is installed from a clone: ``pip install '.[torch]'``. Errors name the package that is missing."""
    files = [
        *REPOSITORY.glob("cloudtrain/**/*.py"),
        *REPOSITORY.glob("docs/**/*.md"),
        *REPOSITORY.glob("examples/**/*.md"),
    ]
    named = [path for path in files if "pip install 'cloudtrain" in path.read_text(encoding="utf-8")]
    assert named == []
