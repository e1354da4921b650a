"""The summary at the end of a run: figures that tests recorded, and how many tests were deselected and why.

A plugin of `conftest`. Workers of pytest-xdist collect and run the tests, another process prints the summary: figures
reach it in the reports, the deselected tests in the output of a worker.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FIGURES = "figures"
"""The summary prints what a test records under this name with ``record_property``."""

_LEFT_OUT = pytest.StashKey[dict[str, int]]()


def find_python(variable: str, environment: str) -> str | None:
    """The interpreter that ``variable`` names, or that of the environment that ./scripts/build_* made."""
    named = os.environ.get(variable)
    path = Path(named or f"~/.cache/cloudtrain-bench/{environment}/bin/python").expanduser()
    if named and not path.is_file():
        raise pytest.UsageError(f"{variable}: there is no {named}")
    return str(path) if path.is_file() else None


def leave_out(config: pytest.Config, items: list[pytest.Item], folder: Path, why: str) -> None:
    """Deselect the tests below ``folder``; the summary says why."""
    deselect(config, items, lambda item: folder in item.path.parents, why)


def deselect(
    config: pytest.Config,
    items: list[pytest.Item],
    unwanted: Callable[[pytest.Item], bool],
    why: str | None = None,
) -> None:
    """Remove the unwanted from ``items``; with ``why``, the summary counts them."""
    kept: list[pytest.Item] = []
    gone: list[pytest.Item] = []
    for item in items:
        (gone if unwanted(item) else kept).append(item)
    if gone:
        items[:] = kept
        config.hook.pytest_deselected(items=gone)
        if why:
            config.stash.setdefault(_LEFT_OUT, {})[why] = len(gone)


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = session.config.stash.get(_LEFT_OUT, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})  # a worker that crashed has none
    node.config.stash.setdefault(_LEFT_OUT, {}).update(output.get("left_out", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for report in [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]:
        for name, text in report.user_properties:
            if name == FIGURES and report.when == "call":
                terminalreporter.section(report.nodeid)
                terminalreporter.write_line(text)
    for why, count in config.stash.get(_LEFT_OUT, {}).items():
        terminalreporter.write_line(f"{count} tests not run: {why}", yellow=True)
