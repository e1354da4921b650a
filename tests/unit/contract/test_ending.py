"""How a host says that it has ended, within the bytes of a pod's termination message."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.contract.ending import LARGEST_ENDING, Ending

REPORT = FailureReport(
    FailureClass.USER_ERROR, "bad value", "Check it.", rank=3, host="job-1", exit_code=7, exception_type="ValueError",
    traceback="Traceback:\n  x", log_tail=("one", "two"), stacks="stack", phase="train", time=1.8e9,
)  # fmt: skip
ENDING = Ending(
    JobStatus.FAILED,
    REPORT,
    {"fetch": 1.5, "train": 60.25},
    {"loss": 0.5, "accuracy": 1.0},
    {"goodput": 0.9, "wall": 10.0, "productive": 9.0, "lost": {"start": 1.0}, "measured_by": "steps"},
    ("the disk is slow",),
    {"model": "s3://bucket/model.tar.gz"},
    {"step": 7, "total_steps": 10, "progress": 0.7},
)


def test_an_ending_survives_a_round_trip() -> None:
    assert Ending.from_json(ENDING.to_json()) == ENDING
    completed = Ending(JobStatus.COMPLETED)
    assert completed.to_json() == '{"status":"Completed"}'
    assert Ending.from_json(completed.to_json().encode()) == completed


def test_a_metric_may_be_infinite_or_not_a_number() -> None:
    found = Ending.from_json(Ending(JobStatus.COMPLETED, metrics={"a": math.inf, "b": math.nan}).to_json())
    assert found.metrics["a"] == math.inf
    assert math.isnan(found.metrics["b"])


@pytest.mark.parametrize("character", ["x", "é", "\U0001f600", "\udc80", "\0", '"', "\n"])
def test_any_ending_fits_and_keeps_the_cause_longest(character: str) -> None:
    text = character * 9000
    report = replace(
        REPORT, message=text, hint=text, exception_type=text, traceback=text + "the last line", host=text,
        log_tail=(text,) * 50, stacks=text, phase=text,
    )  # fmt: skip
    ending = Ending(
        JobStatus.FAILED,
        report,
        {f"phase {number}": 1.5 for number in range(1000)},
        {f"metric {number}": 0.123456789 for number in range(1000)},
        {**ENDING.goodput, "lost": {f"cause {number}": 1.0 for number in range(1000)}},
        (text,) * 10,
        {"model": f"s3://bucket/{text}"},
    )
    data = ending.to_json().encode()
    assert len(data) <= LARGEST_ENDING
    found = Ending.from_json(data)
    assert found.failure is not None
    assert (found.failure.failure_class, found.failure.rank) == (REPORT.failure_class, 3)
    assert found.failure.exit_code == 7
    assert found.failure.message.startswith(character)
    assert found.failure.traceback.endswith("the last line")


def test_what_is_least_missed_is_left_out_first() -> None:
    metrics = {f"metric {number}": float(number) for number in range(1000)}
    found = Ending.from_json(replace(ENDING, metrics=metrics).to_json())
    assert found == replace(ENDING, metrics={name: metrics[name] for name in list(metrics)[:20]})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("container has runAsNonRoot and image will run as root", "not JSON"),
        ("[" * 10_000, "nested too deeply|not JSON"),  # Python 3.14 reads as many
        (b"\xff", "not UTF-8"),
        ("[]", "not an object"),
        ("{}", "status is missing"),
        ('{"status": "Nothing"}', "status is not valid"),
        ('{"status": "Running"}', "status is not final"),
        ('{"status": "Failed", "failure": []}', "failure is not an object"),
        ('{"status": "Failed", "failure": {"failure_class": "x"}}', "failure_class is not valid"),
        ('{"status": "Failed", "phases": {"a": "b"}}', "phases.a is not a number"),
        ('{"status": "Failed", "metrics": {"a": ' + "9" * 400 + "}}", "metrics.a is not a number"),
        ('{"status": "Failed", "goodput": {"goodput": -1}}', "goodput.goodput is not a number"),
        ('{"status": "Failed", "warnings": [1]}', "warnings is not a list of strings"),
        (
            '{"status": "Failed", "uploaded": {"model": 5}}',
            "uploaded is not an object whose values are strings",
        ),
        (json.dumps({"status": "Failed", "x": "y" * 20_000}), "too long"),
    ],
)
def test_hostile_text_is_a_value_error(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Ending.from_json(text)
