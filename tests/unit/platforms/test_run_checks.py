"""Checks run at the same time, and each has a status."""

from __future__ import annotations

import threading

import pytest

from cloudtrain.errors import PlatformError
from cloudtrain.platforms import CheckStatus, Finding, run_checks

OK = Finding(CheckStatus.OK, "fine")


def test_findings_are_in_the_order_of_the_checks() -> None:
    last_has_run = threading.Event()

    def first() -> Finding:
        assert last_has_run.wait(120)
        return Finding(CheckStatus.WARNING, "after the last")

    def last() -> Finding:
        last_has_run.set()
        return OK

    found = list(run_checks({"first": first, "last": last}))
    assert [(name, finding.status) for name, finding in found] == [
        ("first", CheckStatus.WARNING),
        ("last", CheckStatus.OK),
    ]


def test_a_cloudtrain_error_is_a_failure_with_its_hint() -> None:
    def refuse() -> Finding:
        raise PlatformError("no such role", hint="Name another.")

    assert dict(run_checks({"role": refuse})) == {
        "role": Finding(CheckStatus.FAILED, "no such role", "Name another.")
    }


def test_a_check_that_does_not_answer_is_unknown() -> None:
    answer = threading.Event()

    def hang() -> Finding:
        answer.wait(120)
        return OK

    found = dict(run_checks({"hangs": hang, "answers": lambda: OK}, timeout=0.2))
    answer.set()
    assert found["hangs"] == Finding(CheckStatus.UNKNOWN, "no answer in 0.2 s")
    assert found["answers"] == OK


def test_a_mistake_in_a_check_is_not_hidden() -> None:
    def mistaken() -> Finding:
        raise KeyError("oops")

    with pytest.raises(KeyError, match="oops"):
        list(run_checks({"mistaken": mistaken}))
