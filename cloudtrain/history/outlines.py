"""Reads from the index how thousands of jobs ended, and checks that it is still valid, without importing platforms."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from cloudtrain._system.files import signature
from cloudtrain.contract.documents import is_number
from cloudtrain.contract.status import JobStatus
from cloudtrain.errors import StorageError
from cloudtrain.index import RECORD, IndexEntry, list_rows, rows_named
from cloudtrain.storage import state_home

FINAL = {status.value: status for status in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.STOPPED)}
"""Without `INTERRUPTED`, because such a job may continue."""
COLUMNS = "status, started_at, ended_at, why, cost, currency, record, is_whole, instance_count"
UNSETTLED = "-"
"""Replaces the result of `record_of` for an end that may change while no record on this machine does."""


class Ended(NamedTuple):
    """How a job ended, with the fields that a table shows. Times are in seconds since the epoch."""

    status: JobStatus
    submitted_at: float
    started_at: float | None
    ended_at: float
    why: str
    cost: float | None
    """The cost in ``currency``; None if either is not known."""
    currency: str


def record_of(name: str, platform: str, home: str | None = None) -> str:
    """A text that changes whenever the record of a job in a folder of this machine does; empty for other jobs.

    Args:
        home: the state folder, for a caller that has it, because it takes time to find.
    """
    try:
        found = signature(os.lstat(f"{home or state_home()}/jobs/{platform}/{name}/{RECORD}"))
        return ":".join([str(number) for number in found])
    except (OSError, ValueError):
        return ""


def known_ends(limit: int | None = None) -> list[tuple[IndexEntry, Ended | None]]:
    """The jobs of `list_jobs`, and how they ended; None for a job whose platform has to be queried."""
    home = _home()
    return [(IndexEntry(*row[:3]), end_of(row, home)) for row in list_rows(limit, COLUMNS)]


def missing_ends() -> dict[IndexEntry, bool]:
    """The jobs of `list_jobs` whose ends are not in the history with their metrics and parameters.

    The value is whether the history has the request and the parameters, from the submission or a look.
    """
    home, found = _home(), dict[IndexEntry, bool]()
    for row in list_rows(columns=COLUMNS):
        if end_of(row, home, whole=True) is None:
            found[IndexEntry(*row[:3])] = isinstance(row[-1], int)
    return found


def _home() -> str:
    try:
        return str(state_home())
    except StorageError:
        return ""


def known_end(name: str, platform: str) -> Ended | None:
    """The end of one job, if it is in the history with the parameters and the metrics."""
    rows = [row for row in rows_named(name, COLUMNS) if row[1] == platform]
    return end_of(rows[-1], str(state_home()), whole=True) if rows else None


def end_of(row: Sequence[Any], home: str, *, whole: bool = False) -> Ended | None:
    """The end in a row of the index, which may be damaged; None if it is no longer valid.

    Args:
        row: a row of `list_rows` with `COLUMNS`.
        home: the state folder.
    """
    try:
        name, platform, submitted, status, started, ended, why, cost, currency, record, is_whole, _ = row
        final = FINAL[status]
        is_finite = math.isfinite(submitted + ended + (started or 0.0))
    except (LookupError, TypeError, ValueError):
        return None
    if not (is_finite and isinstance(why, str) and (is_whole or not whole)):
        return None
    if record_of(name, platform, home) != record:
        return None
    if cost is None or not (is_number(cost) and isinstance(currency, str)):
        return Ended(final, submitted, started, ended, why, None, "")
    return Ended(final, submitted, started, ended, why, cost, currency)
