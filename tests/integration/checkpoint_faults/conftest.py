"""Prints the figures of the rounds at the end of a run of pytest."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]:
        for name, text in report.user_properties:
            if name == "figures" and report.when == "call":
                terminalreporter.section(report.nodeid)
                terminalreporter.write_line(text)
