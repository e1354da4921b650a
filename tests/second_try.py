"""Writes the tests that failed to a file, so that ./scripts/test can run them once more: a plugin of `conftest`.

Tests with real processes share two processors with three other tests. A wait that is long enough on a quiet machine may
then be too short. ./scripts/test runs the few tests that failed a second time, one after the other: only a failure that
happens again fails the run. The output shows both.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failed-to", type=Path, metavar="FILE", help="write the IDs of failed tests to FILE")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    path: Path | None = config.getoption("--failed-to")
    if path is not None:
        reports = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
        path.write_text("".join(f"{name}\n" for name in dict.fromkeys(map(_name, reports))))


def _name(report: pytest.TestReport) -> str:
    """The ID without the group, which `selection` appends."""
    test, bracket, _ = report.nodeid.rpartition("]@")
    if bracket:
        return f"{test}]"
    return report.nodeid if "[" in report.nodeid else report.nodeid.partition("@")[0]
