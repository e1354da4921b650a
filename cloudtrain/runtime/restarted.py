"""Starts again after a failure no more often than the job says, where a kubelet starts containers again by itself.

The container of a pod whose ``restartPolicy`` is ``OnFailure`` finds its volumes again, with the failure in them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from cloudtrain.contract import FailureReport, JobStatus, Paths, Settings
from cloudtrain.contract.documents import LARGEST_REPORT, parse_json
from cloudtrain.runtime.outcome import NO_FAULT, HostOutcome


def earlier_failure(paths: Paths, environ: Mapping[str, str]) -> HostOutcome | None:
    """The failure with which this container ended before, if that was the last time; None if the job may run.

    Raises ValueError if a setting cannot be read.
    """
    retries = Settings.from_environ(environ).retries_in_place
    if retries < 0:
        return None
    with contextlib.suppress(OSError, ValueError):  # there is none, or the script has written it
        with paths.failure_report.open("rb") as file:
            report = FailureReport.from_dict(parse_json(file.read(LARGEST_REPORT)))
        if report.failure_class in NO_FAULT:
            return None
        failures = _count(paths) + 1
        if failures > retries:
            return HostOutcome(JobStatus.FAILED, report)
        _counter(paths).write_text(str(failures))
    return None


def _counter(paths: Paths) -> Path:
    return paths.output / "failures"


def _count(paths: Paths) -> int:
    try:
        with _counter(paths).open() as file:
            return max(0, int(file.read(10)))
    except (OSError, ValueError):
        return 0
