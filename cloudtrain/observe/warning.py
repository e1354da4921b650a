"""Warnings of a rank, among the events of its job."""

from __future__ import annotations

import contextlib
import os

from cloudtrain.contract import Paths
from cloudtrain.observe.events import EventLog


def record_warning(message: str) -> None:
    """Add a warning to the events of the job that this process is a rank of. Does nothing outside a job."""
    if "CLOUDTRAIN_RUN_DIR" not in os.environ:
        return
    with contextlib.suppress(OSError):  # a full disk: the message is in the log, too
        EventLog(Paths.from_environ().events, os.environ.get("SM_CURRENT_HOST", "")).emit(
            "warning", message=message
        )
