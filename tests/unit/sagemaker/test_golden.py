"""Compares recorded requests of the SageMaker SDK with those of cloudtrain, field by field.

Each file in ``tests/data/golden`` has the Python of one case and the requests that ``sagemaker`` 2.257.7 made of it.
``tox -e parity`` compares live, over more cases.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parity.capture import capture
from parity.deviations import JOB, TUNING, correct, differences, normalise

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
CASES = {path.stem: json.loads(path.read_text()) for path in sorted(GOLDEN.glob("*.json"))}
JOBS = [name for name, case in CASES.items() if JOB in case["requests"]]
TUNERS = [name for name, case in CASES.items() if TUNING in case["requests"]]
REFUSED = [name for name, case in CASES.items() if case["error"] and name != "pytorchddp"]

FIRST_CALLS = {"sts.GetCallerIdentity", "s3.PutObject"}
"""Of a job with a new source, where the default bucket exists, before CreateTrainingJob."""


@pytest.mark.parametrize("name", JOBS)
def test_the_request_is_that_of_the_sdk_in_fewer_calls(name: str, toolkit: None) -> None:
    captured = capture(CASES[name]["code"], "cloudtrain")
    assert captured["error"] is None
    ours = normalise(captured["requests"][JOB])
    theirs, _ = correct(normalise(CASES[name]["requests"][JOB]), ours)
    assert differences(theirs, ours) == []
    *first, last = captured["calls"]
    assert last == "sagemaker.CreateTrainingJob"
    assert sorted(first) == sorted({*first} & FIRST_CALLS)


@pytest.mark.parametrize("name", TUNERS)
def test_the_request_of_a_tuning_job_is_that_of_the_sdk_in_fewer_calls(name: str, toolkit: None) -> None:
    captured = capture(CASES[name]["code"], "cloudtrain")
    assert captured["error"] is None
    sdk = normalise(CASES[name]["requests"][TUNING])
    assert differences(sdk, normalise(captured["requests"][TUNING])) == []
    *first, last = captured["calls"]
    assert last == "sagemaker.CreateHyperParameterTuningJob"
    assert sorted(first) == sorted({*first} & FIRST_CALLS)


def test_what_the_sdk_refuses_is_refused(toolkit: None) -> None:
    case: dict[str, Any] = CASES["pytorchddp"]
    captured = capture(case["code"], "cloudtrain")
    assert case["error"].startswith("ValueError: Provided framework_version 2.5.1 is not supported")
    assert "InvalidJob: distribution: the image of pytorch 2.5.1 does not have" in captured["error"]
    assert captured["calls"] == ["sts.GetCallerIdentity"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_sdk_refuses_of_algorithms_is_refused(name: str, toolkit: None) -> None:
    captured = capture(CASES[name]["code"], "cloudtrain")
    assert captured["error"].startswith("InvalidJob: ")
    assert not captured["requests"]
