"""The failure reports and warnings that only a supervisor can create: about its disk, and about preemptions."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.errors import PlatformError
from cloudtrain.runtime.diagnose.first_cause import INTERRUPTED
from cloudtrain.runtime.supervisor.continuation import TAKEN_BACK

_STARTING = ("start", "fetch", "unpack", "requirements", "launch")
"""The phases of a host before its ranks start."""
FULL_BELOW = 1_000_000
"""With fewer free bytes, a disk may have been full earlier, because the end of a job frees some."""


def disk_full_report(folder: Path, attempt: int, error: OSError) -> FailureReport:
    """The report of an attempt that could not begin."""
    return FailureReport(
        FailureClass.DISK_FULL,
        f"attempt {attempt} cannot start: {error}",
        f"Free space on the disk of {folder}, or set CLOUDTRAIN_HOME to a folder on another disk.",
        time=time.time(),
    )


def found_no_space(failure: FailureReport) -> bool:
    """Whether an attempt found the disk full before a rank of it started."""
    return (
        failure.failure_class == FailureClass.DISK_FULL
        and failure.rank is None
        and failure.phase in (None, *_STARTING)
    )


def disk_warnings(folder: Path) -> tuple[str, ...]:
    """The warnings of a job whose disk is nearly full at its end."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return ()
    if free >= FULL_BELOW:
        return ()
    lost = "a part of the log and of the events may be lost"
    return (f"the disk of {folder} has less than 1 MB left: {lost}",)


def preemption_report(
    cause: FailureClass, error: PlatformError | None, request: Mapping[str, Any]
) -> FailureReport:
    """The report of a job that was preempted more often than ``max_preemptions`` allows, or cannot continue.

    Args:
        error: why the scheduler does not start the next attempt, although one is left.
    """
    words = TAKEN_BACK[cause]
    if error:
        message = f"{words}, and not restarted: {error.message}"
        hint = error.hint or "Submit the job again: it resumes from its last checkpoint."
    else:
        message = f"{words} more often than max_preemptions allows ({request['max_preemptions']})"
        hint = "Raise platform_options.max_preemptions; or submit the job again: it resumes from its last checkpoint."
    return FailureReport(cause, message, hint, exit_code=INTERRUPTED, time=time.time())
