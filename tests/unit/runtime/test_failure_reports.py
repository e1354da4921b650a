"""The failure reports of a job stay as recorded: class, sentence, hint, place and code."""

from __future__ import annotations

import json

from failure_reports import FILE, rendered, reports

from cloudtrain.contract import FailureReport


def test_failure_reports_equal_the_recorded_ones() -> None:
    found, recorded = json.loads(rendered()), json.loads(FILE.read_text(encoding="utf-8"))
    assert found.keys() == recorded.keys()
    changed = {name: (report, recorded[name]) for name, report in found.items() if report != recorded[name]}
    assert changed == {}, "if that is intended: python tests/unit/runtime/failure_reports.py"


def test_failure_reports_survive_the_way_through_json() -> None:
    for report in reports().values():
        assert FailureReport.from_json(report.to_json()) == report
