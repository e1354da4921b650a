"""Restarts hosts in place: after failures of the script as often as the job permits, after other failures always.

A kubelet or an operator that restarts containers by itself may count neither, or both. The container of a pod whose
``restartPolicy`` is ``OnFailure`` gets the same volumes, which contain the failure.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Callable

from cloudtrain._system.files import read_regular
from cloudtrain._system.signals import block
from cloudtrain.contract import FailureReport, JobStatus, Paths, Settings
from cloudtrain.contract.documents import LARGEST_REPORT, parse_json
from cloudtrain.runtime.outcome import NO_FAULT, HostOutcome, reached_limit
from cloudtrain.storage.atomic import write_file

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
PAUSE = 2.0
"""Seconds before a host restarts."""


def earlier_failure(paths: Paths, environ: Mapping[str, str]) -> HostOutcome | None:
    """The failure with which this container ended before, if that was final; None if the job may run.

    Raises ValueError if a setting cannot be read.
    """
    retries = Settings.from_environ(environ).retries_in_place
    if retries < 0:
        return None
    with contextlib.suppress(OSError, ValueError):  # there is no report, or the script has written it
        report = FailureReport.from_dict(parse_json(read_regular(paths.failure_report, LARGEST_REPORT)))
        if reached_limit(report):
            return HostOutcome.at_limit(report)
        if report.failure_class in NO_FAULT:
            return None
        failures = _count(paths) + 1
        if failures > retries:
            return HostOutcome(JobStatus.FAILED, report)
        write_file(_counter(paths), str(failures).encode())
    return None


def start_again(code: int, environ: Mapping[str, str], is_asked_to_end: Callable[[], bool]) -> None:
    """Replace this process by `Settings.restart_program` if the job ends through no fault of the script or this host.

    If so, this function does not return.

    Args:
        code: the exit code of this host.
        environ: the variables with which this process was started.
        is_asked_to_end: whether a signal to end has arrived. When a job is stopped, its hosts get their signals one
            after the other.
    """
    with contextlib.suppress(ValueError):
        settings = Settings.from_environ(environ)
        if settings.restart_program and code == settings.restart_exit_code:
            time.sleep(PAUSE)
            block(
                STOP_SIGNALS
            )  # process 1 of a pod ignores a signal without a handler; the next runtime receives a blocked one
            if not is_asked_to_end():
                os.execve(sys.executable, [sys.executable, "-S", settings.restart_program], dict(environ))


def _counter(paths: Paths) -> Path:
    return paths.output / "failures"


def _count(paths: Paths) -> int:
    try:
        return max(0, int(read_regular(_counter(paths), 10)))
    except (OSError, ValueError):
        return 0
