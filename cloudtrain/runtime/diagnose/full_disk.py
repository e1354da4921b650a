"""Names a full disk in the report of a failure that may follow from it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace

from cloudtrain.contract import FailureClass, FailureReport

FULL_BELOW = 1_000_000
"""Free bytes below which a disk counts as full: the end of a rank frees some."""


def with_full_disk(report: FailureReport, folders: Sequence[str | os.PathLike[str]]) -> FailureReport:
    """``report``, with a hint that names the first folder whose disk is full.

    Libraries hide the cause when a write fails: another exception, or none at all.
    """
    full = next((folder for folder in folders if _is_full(folder)), None)
    if full is None or report.failure_class == FailureClass.DISK_FULL:
        return report
    hint = (
        f"The disk of {full} is full, which may be the cause: free space on it, or use a larger volume_size."
    )
    return replace(report, hint=f"{hint} {report.hint}".rstrip())


def writable_folders(base: str | os.PathLike[str]) -> tuple[str | os.PathLike[str], ...]:
    """Where a script writes: its job's folder, and that of temporary files."""
    # tempfile.gettempdir tries to write: it would skip a full folder, and fail if all of them are full.
    temporary = next(filter(None, map(os.environ.get, ("TMPDIR", "TEMP", "TMP"))), "/tmp")
    return base, temporary


def _is_full(folder: str | os.PathLike[str]) -> bool:
    try:
        return shutil.disk_usage(folder).free < FULL_BELOW
    except OSError:
        return False
