"""Runs short scripts to their end in this process, and records it as the runtime does for a rank."""

from __future__ import annotations

import contextlib
import io
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

from cloudtrain.contract import FailureReport
from cloudtrain.runtime.diagnose.hints.table import UNKNOWN, JobFacts
from cloudtrain.runtime.diagnose.rank_exit import RankExit
from cloudtrain.runtime.diagnose.ranks import diagnose
from cloudtrain.runtime.run_folder import RankRecord


def end_of(code: str, *arguments: str, path: Path | None = None) -> RankExit:
    """How a script with this code and these arguments ends, with ``path`` in front of the module search path."""
    output = io.StringIO()
    with _as_program(arguments, path), contextlib.redirect_stderr(output), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(compile(code, "train.py", "exec"), {"__name__": "__main__"})
        except SystemExit as error:
            number = error.code if isinstance(error.code, int) else 1
            text = error.code if isinstance(error.code, str) else ""
            record = RankRecord(1, 0, number, "SystemExit", text, "", 5.0)
        except BaseException as error:
            lines = "".join(traceback.format_exception(error))
            record = RankRecord(1, 0, 1, type(error).__qualname__, str(error), lines, 5.0)
        else:
            raise AssertionError(f"it did not fail: {code}")
    return RankExit(0, record.exit_code or 1, 9.0, record, tuple(output.getvalue().splitlines()))


@contextlib.contextmanager
def _as_program(arguments: tuple[str, ...], path: Path | None) -> Iterator[None]:
    before = sys.argv[:], sys.path[:], set(sys.modules)
    sys.argv[:] = ["train.py", *arguments]
    if path:
        sys.path.insert(0, str(path))
    try:
        yield
    finally:
        sys.argv[:], sys.path[:] = before[0], before[1]
        if path:
            for name in set(sys.modules) - before[2]:
                if str(path) in str(getattr(sys.modules[name], "__file__", None)):
                    del sys.modules[name]


def report_on(
    code: str, *arguments: str, path: Path | None = None, facts: JobFacts = UNKNOWN
) -> FailureReport:
    return diagnose(end_of(code, *arguments, path=path), "algo-1", facts=facts)


def printed(end: RankExit) -> RankExit:
    """The same end as it is known where only the output is: a script that a shell script runs, AWS's toolkit."""
    assert end.record
    lines = (*end.log_tail, *end.record.traceback.rstrip().split("\n"))
    return RankExit(end.rank, end.exit_code, end.time, None, tuple(line for line in lines if line))
