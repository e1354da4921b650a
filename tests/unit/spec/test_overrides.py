"""Overrides from the command line."""

from __future__ import annotations

from typing import Any

import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.spec import apply_overrides, script_arguments


def test_settings_override_fields_in_a_copy() -> None:
    fields = {"hyperparameters": {"lr": 1}}
    changed = apply_overrides(
        fields, ["hyperparameters.lr=1e-3", "hyperparameters.name=x=y", "a.b.c=[1]", "n=2"]
    )
    assert changed == {"hyperparameters": {"lr": 0.001, "name": "x=y"}, "a": {"b": {"c": [1]}}, "n": 2}
    assert fields == {"hyperparameters": {"lr": 1}}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("a", "does not have the form"),
        ("=1", "does not have the form"),
        ("n.x=1", "cannot set 'x'"),
        ("a=[1", "--set a, line 2"),
    ],
)
def test_settings_that_are_refused(setting: str, message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        apply_overrides({"n": 1}, [setting])


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["--epochs", "5"], {"epochs": 5}),
        (["--lr=0.1", "-e", "5"], {"lr": 0.1, "e": 5}),
        (["--version", "1.10"], {"version": "1.10"}),
        (["--x", "1e-3"], {"x": "1e-3"}),
        (["--zip", "007"], {"zip": "007"}),
        (["--amp", "--lr", "-0.5"], {"amp": True, "lr": -0.5}),
        (["--text", ""], {"text": ""}),
        (["--a", "true"], {"a": "true"}),
        ([], {}),
    ],
)
def test_script_arguments(arguments: list[str], values: dict[str, Any]) -> None:
    assert script_arguments(arguments) == values


@pytest.mark.parametrize("arguments", [["5"], ["--a", "1", "2"], ["--"], ["-"]])
def test_arguments_without_a_name(arguments: list[str]) -> None:
    with pytest.raises(InvalidJob, match="has no name"):
        script_arguments(arguments)
