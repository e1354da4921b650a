"""Decides which failed tests may run once more: a plugin of `conftest`.

Tests with real processes share two processors with three other tests. A wait that is long enough on a quiet machine may
then be too short, and some failures of libraries are rare. Such a test is a defect: fix it. Until then, `FLAKY` lists
it with the last day on which ./scripts/test may run it a second time, alone. Any other failure fails the run.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Flaky:
    test: str
    """The ID of a file or test below the folder of the tests; without parameters, it includes all of them."""
    until: datetime.date
    """The last day of its second tries, at most two months after it was listed."""
    why: str


FLAKY = (
    Flaky(
        "integration/local/test_local_killed_submissions.py::test_a_killed_submission_leaves_a_job_or_a_free_name",
        datetime.date(2027, 1, 22),
        "a host's runtime exited with 1 once, cause unknown",
    ),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    why = "write the IDs of the failed tests to FILE if all of them may have a second try"
    parser.addoption("--second-try-to", type=Path, metavar="FILE", help=why)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    path: Path | None = config.getoption("--second-try-to")
    if path is None:
        return
    reports = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    failed = list(dict.fromkeys(map(_name, reports)))
    final = [name for name in failed if not may_run_again(name, FLAKY, datetime.date.today())]
    path.write_text("" if final else "".join(f"{name}\n" for name in failed))
    if failed and final:
        terminalreporter.write_line(
            f"No second try: tests/second_try.py does not list {final[0]}, or no longer"
        )


def may_run_again(name: str, flaky: Iterable[Flaky], today: datetime.date) -> bool:
    return any(_includes(f"tests/{one.test}", name) and today <= one.until for one in flaky)


def _includes(listed: str, name: str) -> bool:
    return name == listed or name.startswith((f"{listed}::", f"{listed}["))


def _name(report: pytest.TestReport) -> str:
    """The ID without the group, which `selection` appends."""
    test, bracket, _ = report.nodeid.rpartition("]@")
    if bracket:
        return f"{test}]"
    return report.nodeid if "[" in report.nodeid else report.nodeid.partition("@")[0]
