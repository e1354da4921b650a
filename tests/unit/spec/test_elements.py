"""The elements of an array of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.spec.elements import array_elements, check_array_name, read_elements, with_element

LR = "hyperparameters.lr"


@pytest.mark.parametrize(
    ("values", "elements"),
    [
        (
            [{LR: 0.1}, {"hyperparameters": {"lr": 1}, "instance_count": 2}],
            [{LR: 0.1}, {LR: 1, "instance_count": 2}],
        ),
        ({LR: [0.1, 0.2]}, [{LR: 0.1}, {LR: 0.2}]),
        (
            {"hyperparameters": {"lr": [1, 2]}, "instance_count": [3, 4], "max_run": 60},
            [
                {LR: 1, "instance_count": 3, "max_run": 60},
                {LR: 1, "instance_count": 4, "max_run": 60},
                {LR: 2, "instance_count": 3, "max_run": 60},
                {LR: 2, "instance_count": 4, "max_run": 60},
            ],
        ),
        ({"arguments": [["--a"], ["--b"]]}, [{"arguments": ["--a"]}, {"arguments": ["--b"]}]),
        ([{"environment": {}}], [{"environment": {}}]),
    ],
)
def test_elements(values: Any, elements: list[dict[str, Any]]) -> None:
    assert array_elements(values) == elements


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ("a", "neither a list of mappings nor a mapping of lists", "- {hyperparameters.lr: 0.1}"),
        (None, "neither a list", "[0.1, 0.01]"),
        ([], "no elements", ""),
        ({}, "no elements", ""),
        ([1], "element 0: not a mapping", ""),
        ([{}, {1: 2}], "element 1: not a mapping", ""),
        ({LR: []}, "hyperparameters.lr has no values", ""),
        ([{"lr": 1}], "no field 'lr'", "hyperparameters.lr"),
        ([{"instance_cout": 1}], "no field 'instance_cout'", "instance_count"),
        ([{"job_name": "a"}], "named after it", "--name"),
        ([{LR: 1, "hyperparameters": {"lr": 2}}], "given twice", ""),
        ({LR: list(range(200)), "max_run": list(range(100))}, "more than 10,000", "several arrays"),
        ([{LR: 1}] * 10_001, "more than 10,000", "several arrays"),
    ],
)
def test_values_that_are_refused(values: Any, message: str, hint: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        array_elements(values, "values.yaml")
    assert caught.value.message.startswith("values.yaml: ")
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_an_element_changes_a_copy_of_the_description() -> None:
    fields = {"hyperparameters": {"lr": 1, "size": 2}, "instance_count": 1}
    assert with_element(fields, {LR: 3, "instance_count": 2, "environment.A": "b"}) == {
        "hyperparameters": {"lr": 3, "size": 2},
        "instance_count": 2,
        "environment": {"A": "b"},
    }
    assert fields == {"hyperparameters": {"lr": 1, "size": 2}, "instance_count": 1}
    with pytest.raises(InvalidJob, match=r"arguments\.a: cannot set 'a'"):
        with_element({"arguments": []}, {"arguments.a": 1})


def test_a_file_of_elements(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text("hyperparameters.lr: [1e-1, 1e-2]\n")
    assert read_elements(path) == [{LR: 0.1}, {LR: 0.01}]
    with pytest.raises(InvalidJob, match="there is no file"):
        read_elements(tmp_path / "missing.yaml")


def test_the_numbers_have_to_fit_into_the_names() -> None:
    check_array_name("a" * 60, 100)
    with pytest.raises(InvalidJob, match="64 characters of 63"):
        check_array_name("a" * 60, 101)
