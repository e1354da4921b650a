"""The space of a sweep, and what it refuses."""

from __future__ import annotations

import json

import pytest

from cloudtrain import CategoricalParameter, ContinuousParameter, IntegerParameter, InvalidJob
from cloudtrain.sweep.space import Choices, Range, combinations, read_searches, read_space, to_document


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("log:1e-5..1e-1", Range(1e-5, 0.1, is_log=True)),
        ("log:1..1024", Range(1, 1024, is_log=True, is_whole=True)),
        ("0.0..0.5", Range(0.0, 0.5)),
        ("linear:0..1", Range(0.0, 1.0)),
        ("1..8", Range(1, 8, is_whole=True)),
        ("int:1..8", Range(1, 8, is_whole=True)),
        ("2,4,8", Choices((2, 4, 8))),
        ("sgd, adam", Choices(("sgd", "adam"))),
        ("true,false", Choices((True, False))),
        (["a", 1], Choices(("a", 1))),
        (ContinuousParameter(1, 2, "Logarithmic"), Range(1.0, 2.0, is_log=True)),
        (IntegerParameter(1, 2), Range(1, 2, is_whole=True)),
        (CategoricalParameter(["x", "y"]), Choices(("x", "y"))),
    ],
)
def test_what_a_dimension_may_be(given: object, found: object) -> None:
    space = read_space({"a": given})
    assert space == {"a": found}
    assert read_space(json.loads(json.dumps(to_document(space)))) == space


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("3..1", "is not less than"),
        ("1..1", "is not less than"),
        ("log:0..1", "cannot begin at 0"),
        ("0..nan", "not a finite number"),
        ("0..inf", "not a finite number"),
        ("1..x", "not a finite number"),
        ("linear:-1e308..1e308", "not a finite number"),
        (f"1..{'9' * 400}", "not a finite number"),
        ("int:0.5..2", "not a whole number"),
        ("log:3", "needs a range"),
        ("3", "one value is not a choice"),
        ("1,,2", "a value is missing"),
        ("", "a value is missing"),
        ("1,2,1", "is there twice"),
        ([], "one value is not a choice"),
        ([1, [2]], "is not text, a finite number or a boolean"),
        ([1.0, float("nan")], "is not text, a finite number or a boolean"),
        (7, "neither a range nor choices"),
        ({"min": 1}, "neither a range nor choices"),
    ],
)
def test_what_is_refused_names_the_hyperparameter(given: object, problem: str) -> None:
    with pytest.raises(InvalidJob, match=r"^search lr: ") as error:
        read_space({"lr": given})
    assert problem in error.value.message


def test_an_empty_space_is_refused() -> None:
    with pytest.raises(InvalidJob, match="the space of the sweep is empty"):
        read_space({})


@pytest.mark.parametrize("texts", [["lr"], ["=1,2"], ["lr=1,2", "lr=3,4"]])
def test_searches_of_the_command_line_that_are_refused(texts: list[str]) -> None:
    with pytest.raises(InvalidJob, match=r"^--search"):
        read_searches(texts)


def test_places_reach_both_ends_and_nothing_outside() -> None:
    for one in read_space({"a": "log:1e-5..1e-1", "b": "1..8", "c": "log:1..1024", "d": "x,y,z"}).values():
        values = [one.at(place / 1000) for place in range(1000)]
        assert all(one.contains(value) for value in values)
        points = one.points()
        if points is not None and len(points) < 10:
            assert {*values} == {*points}
            counts = [values.count(value) for value in points]
            assert max(counts) - min(counts) <= 2, "equally likely"


def test_a_grid_of_numbers_without_steps_is_refused() -> None:
    assert combinations(read_space({"a": "1..3", "b": "x,y"})) == 6
    with pytest.raises(InvalidJob, match="search lr: a grid needs a list"):
        combinations(read_space({"lr": "0.0..1.0"}))
    with pytest.raises(InvalidJob, match="the grid has 1,000,000 points"):
        combinations(read_space({"a": "1..1000", "b": "1..1000"}))
