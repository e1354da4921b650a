"""One rank of a suite: runs its tests with pytest and appends what happens to each to `rank-N.jsonl`.

    suite_rank.py RESULTS FILE [-k EXPRESSION]

It runs on the Python of the suite, which may lack pytest: `SUITE_LIBRARIES` is searched last.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

RANK_VARIABLES = ("RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def main(results: str, file: str, *select: str) -> int:
    sys.path.append(os.environ["SUITE_LIBRARIES"])
    replace_modules()
    import pytest

    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly", "-q", "--tb=short", "-rN"]
    rootdir = ["-c", os.devnull, "--rootdir", str(Path(file).parent)]
    recorder = Recorder(Path(results) / f"rank-{rank_of_environment()}.jsonl")
    status = int(pytest.main([*options, *rootdir, *select, file], plugins=[recorder]))
    recorder.write(finished=status)
    return 0 if status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) else status


class Recorder:
    """A plugin of pytest that flushes each event, so that after a hang the last test that began is known."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def write(self, **event: Any) -> None:
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.write(started=name_of(nodeid))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.outcome != "passed" or report.when == "call":
            self.write(test=name_of(report.nodeid), outcome=report.outcome, reason=reason_of(report))

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.write(
                test=name_of(report.nodeid) or "collection", outcome="failed", reason=reason_of(report)
            )


def reason_of(report: Any) -> str:
    """Why a test failed or was skipped, in one line."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr or "").strip().rpartition("\n")[2]
    return text.partition("\n")[0][:300]


def name_of(nodeid: str) -> str:
    """A test without its file and class."""
    return nodeid.rpartition("::")[2]


def rank_of_environment() -> str:
    return next(os.environ[name] for name in RANK_VARIABLES if name in os.environ)


def replace_modules() -> None:
    """Provide the parts of Horovod's launcher that the suites import."""
    for name, contents in {
        "horovod.runner": {},
        "horovod.runner.util": {},
        "horovod.runner.util.threads": {"in_thread": in_thread},
        "horovod.runner.common": {},
        "horovod.runner.common.util": {},
        "horovod.runner.common.util.env": {"get_env_rank_and_size": rank_and_size},
    }.items():
        module = types.ModuleType(name)
        vars(module).update(contents, __path__=[])
        sys.modules.setdefault(name, module)


def in_thread(target: Callable[..., object], args: tuple[Any, ...] = (), **options: Any) -> threading.Thread:
    """As `horovod.runner.util.threads.in_thread`."""
    thread = threading.Thread(target=functools.partial(target, *args), daemon=True)
    thread.start()
    return thread


def rank_and_size() -> tuple[int, int]:
    """As `horovod.runner.common.util.env.get_env_rank_and_size`."""
    return int(rank_of_environment()), int(os.environ.get("WORLD_SIZE") or os.environ["OMPI_COMM_WORLD_SIZE"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
