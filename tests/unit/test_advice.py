"""Advice can be followed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from cloudtrain import errors

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


def test_no_message_needs_a_clone() -> None:
    """With only the wheel, there is no folder with the extras: ``pip install '.[dashboard]'`` fails there."""
    named = [
        path for path in REPOSITORY.glob("cloudtrain/**/*.py") if "pip install '." in path.read_text("utf-8")
    ]
    assert named == []


def test_errors_about_missing_things_have_hints() -> None:
    """An error of cloudtrain that begins with "there is no" has a hint."""
    of_users = {name for name in vars(errors) if name[0].isupper()} | {"InvalidArgument", "KubeNotFound"}
    without = [
        f"{path.relative_to(REPOSITORY)}:{call.lineno}: {text}"
        for path in REPOSITORY.glob("cloudtrain/**/*.py")
        for call, text in _calls(ast.parse(path.read_text(encoding="utf-8")), of_users)
        if text.startswith(("there is no", "there are no", "no "))
        and len(call.args) == 1
        and not {"hint", None} & {keyword.arg for keyword in call.keywords}
    ]
    assert without == []


def _calls(tree: ast.Module, names: set[str]) -> Iterator[tuple[ast.Call, str]]:
    """The calls of ``names`` whose first argument is text, with the beginning of that text."""
    for call in ast.walk(tree):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id in names
            and call.args
        ):
            text = call.args[0]
            first = text.values[0] if isinstance(text, ast.JoinedStr) and text.values else text
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield call, first.value
