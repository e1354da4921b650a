"""The list of suites: which file, how it is launched with how many ranks, and how many of its tests pass.

The suites are Horovod's own, at one commit. They are not in this repository: they run from a checkout.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

LIST = Path(__file__).with_name("suites.yaml")
LAUNCHERS = {
    "run": "cloudtrain run -np {ranks}",
    "mpi": "cloudtrain run -np {ranks} --mpi",
    "horovod": "cloudtrain submit --horovod --processes-per-host {ranks}",
    "mpirun": "cloudtrain submit --mpirun --processes-per-host {ranks}",
}


@dataclass(frozen=True)
class Part:
    """One suite, or a part of it, under one launcher with one number of ranks, and its expected outcome."""

    suite: str
    file: str
    launcher: str
    ranks: int
    python: str = "torch"
    """The interpreter that it needs: a key of `pythons.yaml` of the public scripts."""
    select: str = ""
    """The tests of this part: an expression for pytest's `-k`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    passed: int = 0
    skipped: int = 0
    fails: Mapping[str, str] = field(default_factory=dict)
    """The tests that fail, each with the reason."""
    not_run: str = ""
    """Why it was not run for the table."""
    timeout: int = 600

    @property
    def name(self) -> str:
        return f"{self.suite}-{self.launcher}-{self.ranks}"

    @property
    def launch(self) -> str:
        return LAUNCHERS[self.launcher].format(ranks=self.ranks)

    @property
    def outcome(self) -> str:
        """The outcome, for the table of the documentation."""
        if self.not_run:
            return f"not run: {self.not_run}"
        counts = {"passed": self.passed, "failed": len(self.fails), "skipped": self.skipped}
        return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


@dataclass(frozen=True)
class SuiteList:
    """The repository of the suites and their parts."""

    url: str
    commit: str
    licence: str
    parts: tuple[Part, ...]


def read_list(path: Path = LIST) -> SuiteList:
    """The list, with one part for each suite, launcher and number of ranks."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    parts = [part for suite in document.pop("suites") for part in _parts(suite)]
    return SuiteList(parts=tuple(parts), **document)


def _parts(suite: dict[str, Any]) -> list[Part]:
    runs = suite.pop("runs")
    return [Part(**{**suite, **run}) for run in runs]


def table(parts: tuple[Part, ...]) -> str:
    """The rows for docs/reference/horovod.md: the outcomes, then each expected failure."""
    lines = ["| part | tests | launch | outcome |", "| --- | --- | --- | --- |"]
    for part in parts:
        tests = f"`{part.file}`" + (f" `-k '{part.select}'`" if part.select else "")
        lines.append(f"| {part.name} | {tests} | `{part.launch}` | {part.outcome} |")
    lines += ["", "| test that fails | in | reason |", "| --- | --- | --- |"]
    failures: dict[tuple[str, str], list[str]] = {}
    for part in parts:
        for test, reason in part.fails.items():
            failures.setdefault((test, reason), []).append(part.name)
    lines += [f"| `{test}` | {', '.join(names)} | {reason} |" for (test, reason), names in failures.items()]
    return "\n".join(lines)


def valid_name(name: str) -> bool:
    """Whether it is also valid as a job's name."""
    return re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", name) is not None
