"""What a run of pytest says at its end: figures that tests have recorded, and which tests were left out.

A plugin of `conftest`. pytest-xdist collects and runs tests in workers, and prints in a process that does neither:
figures travel in reports, what was left out in the last word of a worker.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

FIGURES = "figures"
"""What a test records by ``record_property`` under this name is printed."""

_LEFT_OUT = pytest.StashKey[dict[str, int]]()


def find_python(variable: str, environment: str) -> str | None:
    """The interpreter that ``variable`` names, else that of an environment which a script of ours makes."""
    named = os.environ.get(variable)
    path = Path(named or f"~/.cache/cloudtrain-bench/{environment}/bin/python").expanduser()
    if named and not path.is_file():
        raise pytest.UsageError(f"{variable}: there is no {named}")
    return str(path) if path.is_file() else None


def leave_out(config: pytest.Config, items: list[pytest.Item], folder: Path, why: str) -> None:
    """Take the tests below ``folder`` out of ``items``."""
    kept, gone = [], []
    for item in items:
        (gone if folder in item.path.parents else kept).append(item)
    if gone:
        items[:] = kept
        config.hook.pytest_deselected(items=gone)
        config.stash.setdefault(_LEFT_OUT, {})[why] = len(gone)


def pytest_sessionfinish(session: pytest.Session) -> None:
    word: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if word is not None:
        word["left_out"] = session.config.stash.get(_LEFT_OUT, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    word = getattr(node, "workeroutput", {})  # none of a worker that has crashed
    node.config.stash.setdefault(_LEFT_OUT, {}).update(word.get("left_out", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for report in [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]:
        for name, text in report.user_properties:
            if name == FIGURES and report.when == "call":
                terminalreporter.section(report.nodeid)
                terminalreporter.write_line(text)
    for why, count in config.stash.get(_LEFT_OUT, {}).items():
        terminalreporter.write_line(f"{count} tests left out: {why}", yellow=True)
