"""Warnings of a rank, among the events of its job."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from cloudtrain.contract import Paths, Settings
from cloudtrain.observe.events import EventLog


def record_warning(message: str) -> None:
    """Add a warning to the events of the job that this process is a rank of. Does nothing outside a job."""
    if "CLOUDTRAIN_RUN_DIR" not in os.environ:
        return
    with contextlib.suppress(OSError, ValueError):  # a full disk: the message is in the log, too
        path = Settings.from_environ().events or Paths.from_environ().output / "events.jsonl"
        EventLog(Path(path), os.environ.get("SM_CURRENT_HOST", "")).emit("warning", message=message)
