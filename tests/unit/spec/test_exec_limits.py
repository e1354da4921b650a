"""The limits of ``execve`` are applied to the byte."""

from __future__ import annotations

import os
import subprocess

import pytest

from cloudtrain import TrainingJob
from cloudtrain.contract import to_arguments
from cloudtrain.errors import InvalidJob

LIMIT = 128 * 1024 - 1

HYPERPARAMETERS = {
    "no-name": ({"": 1}, "'' is not a valid name"),
    "equals": ({"a=b": 1}, "'a=b' is not a valid name"),
    "arguments": (
        {"sagemaker_arguments": "hello"},
        "a name of cloudtrain's own(?s:.*)Set the field arguments",
    ),
    "arguments-2": (
        {"sagemaker_arguments_2": "hello"},
        "'sagemaker_arguments_2' is a name of cloudtrain's own",
    ),
    "nul-name": ({"a\0b": 1}, "is not a valid name"),
    "nul": ({"text": "a\0b"}, "hyperparameter 'text' contains a NUL character"),
    "surrogate": ({"text": "a\udcff"}, r"hyperparameter 'text' is not text: UTF-8 has no '\\udcff'"),
    "surrogate-inside": ({"x": {"deep": ["\ud800"]}}, "hyperparameter 'x' is not text"),
    "surrogate-name": ({"a\udcff": 1}, r"name of hyperparameter 'a\\udcff' is not text"),
    "long": ({"text": "x" * (LIMIT + 1)}, "hyperparameter 'text' has 131,072 bytes; .* at most 131,071"),
    "long-utf8": ({"text": "é" * (LIMIT // 2 + 1)}, "has 131,072 bytes"),
    "long-list": ({"text": ["x" * LIMIT]}, "has 131,075 bytes"),
    "long-name": ({"x" * LIMIT: 1}, "the name of hyperparameter 'x+' has 131,073 bytes"),
}


@pytest.mark.parametrize("case", HYPERPARAMETERS)
def test_hyperparameters_that_cannot_be_arguments(case: str) -> None:
    values, message = HYPERPARAMETERS[case]
    with pytest.raises(InvalidJob, match=message):
        TrainingJob.from_dict({"hyperparameters": values})


ENVIRONMENTS = {
    "nul": ("A_TOKEN", "sesame\0", "the value of A_TOKEN contains a NUL character"),
    "surrogate": ("A_TOKEN", "sesame\udcff", "the value of A_TOKEN is not text"),
    "long": ("A_TOKEN", "sesame" * LIMIT, "the value of A_TOKEN has 786,426 bytes"),
    "name": ("A=B", "sesame", "'A=B' is not a valid variable name"),
    "own": (
        "CLOUDTRAIN_OUTPUT_URI",
        "sesame",
        "is reserved for cloudtrain\n  Set the field output_path instead",
    ),
    "own-too": ("CLOUDTRAIN_SOURCE_SHA256", "sesame", "is reserved for cloudtrain\n  Remove it"),
    "inner": ("CLOUDTRAIN_RUN_DIR", "sesame", "is reserved for cloudtrain"),
}


@pytest.mark.parametrize("case", ENVIRONMENTS)
def test_variables_that_are_refused_without_their_value(case: str) -> None:
    name, value, message = ENVIRONMENTS[case]
    with pytest.raises(InvalidJob, match=message) as caught:
        TrainingJob.from_dict({"environment": {name: value}})
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("name", ["CLOUDTRAIN_START_TIMEOUT", "CLOUDTRAIN_COLLECTIVE_TIMEOUT"])
def test_variables_for_the_script_stay(name: str) -> None:
    assert TrainingJob.from_dict({"environment": {name: "5"}}).environment == {name: "5"}


def test_the_longest_that_is_accepted_starts_and_one_byte_more_does_not() -> None:
    fields = {
        "hyperparameters": {"text": "x" * LIMIT},
        "environment": {"NAME": "é" + "x" * (LIMIT - len("NAME=") - len("é".encode()))},
    }
    job = TrainingJob.from_dict(fields)
    arguments = to_arguments(job.hyperparameters)
    subprocess.run(["true", *arguments], env={**os.environ, **job.environment}, check=True)
    longer = {"NAME": job.environment["NAME"] + "x"}
    with pytest.raises(InvalidJob):
        TrainingJob.from_dict({"environment": longer})
    with pytest.raises(OSError, match="too long"):
        subprocess.run(["true"], env={**os.environ, **longer}, check=True)
    with pytest.raises(OSError, match="too long"):
        subprocess.run(["true", arguments[1] + "x"], check=True)
