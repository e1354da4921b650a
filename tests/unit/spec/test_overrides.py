"""Overrides from the command line."""

from __future__ import annotations

import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.spec import apply_overrides


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
    ("setting", "expected"),
    [
        ("environment.V=1.10", {"environment": {"V": "1.10"}}),
        ("environment.TOKENIZERS_PARALLELISM=false", {"environment": {"TOKENIZERS_PARALLELISM": "false"}}),
        ("environment.V=", {"environment": {"V": ""}}),
        ("environment.V=null", {"environment": {"V": "null"}}),
        ("environment={V: 1e-3}", {"environment": {"V": "1e-3"}}),
        ("framework_version=2.10", {"framework_version": "2.10"}),
        ("max_run=10", {"max_run": 10}),
    ],
)
def test_variables_and_versions_are_text_as_written(setting: str, expected: dict[str, object]) -> None:
    """A shell removes the quotes that would make them text."""
    assert apply_overrides({}, [setting]) == expected
