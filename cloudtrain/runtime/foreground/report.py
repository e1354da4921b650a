"""How a run in the foreground ends: its exit status, and what it prints."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Sequence

from cloudtrain._system.signals import SIGHUP
from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.contract.text import escape_text
from cloudtrain.runtime.diagnose.ranks import HINTS as OF_JOBS
from cloudtrain.runtime.diagnose.ranks import first_cause, with_ended_ranks
from cloudtrain.runtime.foreground.ranks import GRACE_SECONDS, Failures

HINTS = {
    FailureClass.MISSING_DATA: "Check the path: ranks run in the working folder of the shell, or in that of --wdir.",
    FailureClass.DISK_FULL: "Free space, or write less data.",
    FailureClass.OUT_OF_MEMORY: "Use a smaller batch size, fewer ranks, or a machine with more memory.",
}
"""In place of those that name fields of a job."""

END_SIGNALS: dict[int, str] = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    SIGHUP: "a closed terminal",
}


def asked_to_end(number: int) -> str:
    """The line that says what a signal has started."""
    again = "; press it again to kill them" if number == signal.SIGINT else ""
    return f"{END_SIGNALS[number]}: the ranks have {GRACE_SECONDS:g} s to end{again}"


def status_of(failures: Failures, completed: Sequence[int]) -> int:
    """The exit status. Prints the cause of a failure."""
    if not failures.reports:
        return 0
    report = with_ended_ranks(first_cause(failures.reports), completed)
    show(report)
    return report.exit_code or 1


def show(report: FailureReport) -> None:
    """Print a failure, the cause last, on stderr."""
    kind, hint = report.failure_class, report.hint
    parts = [f"\n{report.summary()}  [{kind}]"]
    if hint:
        parts.append(HINTS.get(kind, hint) if hint == OF_JOBS.get(kind) else hint)
    if report.traceback:
        parts.append(f"\n{report.traceback.rstrip()}")
    with contextlib.suppress(OSError):  # the terminal may be closed
        sys.stderr.write(escape_text("\n".join(parts)) + "\n")
        sys.stderr.flush()
