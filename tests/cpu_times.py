"""Measures the CPU time of each test with all that it starts, daemons too: a plugin of `conftest`.

``pytest --cpu-times FILE`` writes a line per test, the most expensive first: seconds of CPU time, of wall time, test.
Root on Linux with control groups counts every process below the worker, ended or not. Elsewhere, only processes that
ended and were waited for are counted, which misses what warm interpreters and servers do.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROPERTY = "cpu-times"
"""The name under which a report carries the CPU and wall time of its phase."""
GROUPS = Path("/sys/fs/cgroup/cpuacct")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-times", type=Path, metavar="FILE", help="write the CPU time of each test to FILE")


def pytest_configure(config: pytest.Config) -> None:
    if path := config.getoption("--cpu-times"):
        config.pluginmanager.register(CPUTimes(path), "cpu-times")


class CPUTimes:
    """On a worker, measures the phases of each test. In the process that has the terminal, adds them up."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._clock = _clock()
        self._last = (0.0, time.monotonic())
        self._sums: dict[str, list[float]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        yield
        self._last = (self._clock(), time.monotonic())

    def pytest_collection_finish(self) -> None:
        self._sums["collection"] = [self._clock(), 0.0]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report: Any = yield
        now = (self._clock(), time.monotonic())
        used = now[0] - self._last[0], now[1] - self._last[1]
        self._last = now
        report.user_properties = [*report.user_properties, (PROPERTY, list(used))]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        sums = self._sums.setdefault(report.nodeid, [0.0, 0.0])
        for name, used in report.user_properties:
            if name == PROPERTY:
                sums[:] = [total + part for total, part in zip(sums, used, strict=True)]  # type: ignore[call-overload]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workeroutput"):
            ordered = sorted(self._sums.items(), key=lambda entry: -entry[1][0])
            lines = [f"{cpu:.3f}\t{wall:.3f}\t{test}\n" for test, (cpu, wall) in ordered]
            self._path.write_text("".join(lines))


def _clock() -> Callable[[], float]:
    """Seconds of CPU that this process and those that it starts have used."""
    group = GROUPS / f"cloudtrain-{os.getpid()}"
    for old in GROUPS.glob("cloudtrain-*"):
        with contextlib.suppress(OSError):  # a process is in it
            old.rmdir()
    try:
        group.mkdir()
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        return lambda: sum(os.times()[:4])
    before = sum(os.times()[:4])
    return lambda: before + int((group / "cpuacct.usage").read_text()) / 1e9
